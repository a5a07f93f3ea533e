package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var acknowledgements = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject, "renew": kgo.AckRenew,
}

type shareMember struct {
	consumer *kgo.Client
	explicit bool
	records  map[string]*kgo.Record
	last     []*kgo.Record
	lock     sync.Mutex
	results  [][]any
}

// runShareMember is a member of a share group that does as it is told, see tests/peers/clients/share_member.py: `share GROUP TOPIC MODE ACQUIRE RECORDS`.
func runShareMember(address string, words []string) {
	most, err := strconv.Atoi(words[4])
	must(err, "records")
	member := &shareMember{explicit: words[2] == "explicit", records: map[string]*kgo.Record{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...), kgo.ShareGroup(words[0]), kgo.ConsumeTopics(words[1]),
		kgo.ShareMaxRecords(int32(most)), kgo.FetchMaxWait(50 * time.Millisecond), kgo.MaxConcurrentFetches(0),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) { member.note(results) }),
	}
	if words[3] == "record-limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	member.consumer, err = kgo.NewClient(options...)
	must(err, "client")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		answer, err := member.answer(strings.Fields(commands.Text()))
		told := map[string]any{"ok": answer}
		if err != nil {
			told = map[string]any{"error": err.Error()}
		}
		line, err := json.Marshal(told)
		must(err, "json")
		fmt.Println(string(line))
	}
}

func (one *shareMember) note(results kgo.ShareAckResults) {
	one.lock.Lock()
	defer one.lock.Unlock()
	for _, result := range results {
		var failure any
		if result.Err != nil {
			failure = result.Err.Error()
		}
		one.results = append(one.results, []any{result.Partition, failure})
	}
}

func (one *shareMember) answer(words []string) (any, error) {
	switch words[0] {
	case "poll":
		wait, err := time.ParseDuration(words[1] + "ms")
		if err != nil {
			return nil, err
		}
		return one.poll(wait), nil
	case "acknowledge":
		record, ok := one.records[words[2]+" "+words[3]]
		if !ok {
			return nil, fmt.Errorf("no record %v", words)
		}
		record.Ack(acknowledgements[words[1]])
		return nil, nil
	case "commit":
		return one.commit()
	default:
		one.consumer.Close()
		return nil, nil
	}
}

func (one *shareMember) poll(wait time.Duration) [][]any {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	taken := [][]any{}
	one.last = one.consumer.PollFetches(ctx).Records()
	for _, record := range one.last {
		one.records[fmt.Sprintf("%d %d", record.Partition, record.Offset)] = record
		taken = append(taken, []any{record.Partition, record.Offset, record.DeliveryCount(), string(record.Value)})
	}
	return taken
}

// commit sends what was acknowledged, without a mark everything of the last poll in the implicit mode, and returns the broker's answers by partition.
func (one *shareMember) commit() (any, error) {
	if !one.explicit {
		one.consumer.MarkAcks(kgo.AckAccept)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := one.consumer.FlushAcks(ctx); err != nil {
		return nil, err
	}
	one.lock.Lock()
	defer one.lock.Unlock()
	results := append([][]any{}, one.results...)
	one.results = nil
	return results, nil
}
