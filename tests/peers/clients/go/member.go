package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	mostRecords      = 50
	outputPartitions = 4
)

// dialog is a conversation with the drill: a line of JSON, which is answered before the program goes on.
type dialog struct {
	lock   sync.Mutex
	answer *bufio.Reader
}

func (one *dialog) tell(key string, value any) string {
	one.lock.Lock()
	defer one.lock.Unlock()
	line, err := json.Marshal(map[string]any{key: value})
	must(err, "json")
	fmt.Println(string(line))
	answer, err := one.answer.ReadString('\n')
	if err != nil {
		os.Exit(1)
	}
	return answer
}

// runMember is a member of a consumer group, see tests/cluster/member_process.py: `member TOPIC GROUP PROTOCOL SESSION_MS`,
// with `OUTPUT TRANSACTIONAL_ID TIMEOUT_MS` one that commits in transactions (tests/cluster/transactional_members.py).
func runMember(address string, words []string) {
	topic, group, protocol := words[0], words[1], words[2]
	session, err := time.ParseDuration(words[3] + "ms")
	must(err, "session")
	drill := &dialog{answer: bufio.NewReader(os.Stdin)}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
			if len(gained[topic]) > 0 {
				drill.tell("assigned", gained[topic])
			}
		}),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if len(words) > 4 {
		transact(options, drill, topic, words[4:])
		return
	}
	consumer, err := kgo.NewClient(options...)
	must(err, "client")
	defer consumer.CloseAllowingRebalance()
	for {
		committed := step(consumer, drill, topic)
		consumer.AllowRebalance()
		if drill.tell("committed", committed) == "close\n" {
			return
		}
	}
}

// step takes some records, has them processed, and commits; it returns the offsets that were acknowledged.
func step(consumer *kgo.Client, drill *dialog, topic string) map[int32]int64 {
	acknowledged := map[int32]int64{}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	records := consumer.PollRecords(ctx, mostRecords).Records()
	cancel()
	if len(records) == 0 {
		return acknowledged
	}
	taken, offsets := [][]int64{}, map[int32]kgo.EpochOffset{}
	for _, record := range records {
		taken = append(taken, []int64{int64(record.Partition), record.Offset})
		offsets[record.Partition] = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
	}
	drill.tell("taken", taken)
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	consumer.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				return
			}
			for _, answer := range response.Topics {
				for _, partition := range answer.Partitions {
					if kerr.ErrorForCode(partition.ErrorCode) == nil {
						acknowledged[partition.Partition] = offsets[partition.Partition].Offset
					}
				}
			}
		})
	return acknowledged
}

// givenUp is the exit code of a member whose producer is of no use any more.
const givenUp = 3

// transact takes records, writes their results and commits their offsets, one transaction after the other. The records of one that is aborted are taken again.
func transact(options []kgo.Opt, drill *dialog, topic string, words []string) {
	output, id := words[0], words[1]
	timeout, err := time.ParseDuration(words[2] + "ms")
	must(err, "timeout")
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(id), kgo.TransactionTimeout(timeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ProducerLinger(time.Millisecond))...)
	must(err, "session")
	defer session.CloseAllowingRebalance()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		records := session.PollRecords(ctx, mostRecords).Records()
		cancel()
		committed := map[int32]int64{}
		if len(records) > 0 {
			committed, err = transaction(session, drill, records, output, id)
			if err != nil {
				fmt.Fprintf(os.Stderr, "franz-go: %v\n", err)
				os.Exit(givenUp)
			}
		} else {
			session.AllowRebalance()
		}
		if drill.tell("committed", committed) == "close\n" {
			return
		}
	}
}

// transaction returns the offsets that were committed, or none.
func transaction(
	session *kgo.GroupTransactSession, drill *dialog, records []*kgo.Record, output, id string,
) (map[int32]int64, error) {
	if err := session.Begin(); err != nil {
		return nil, err // and the process ends
	}
	taken, offsets := [][]int64{}, map[int32]int64{}
	for _, record := range records {
		taken = append(taken, []int64{int64(record.Partition), record.Offset})
		offsets[record.Partition] = record.Offset + 1
	}
	drill.tell("taken", taken)
	var failures kgo.FirstErrPromise
	for _, record := range records {
		value := fmt.Sprintf("%d:%d %s go %d", record.Partition, record.Offset, id, os.Getpid())
		session.Produce(context.Background(),
			&kgo.Record{Topic: output, Partition: record.Partition % outputPartitions, Value: []byte(value)}, failures.Promise())
	}
	isComplete := failures.Err() == nil
	// End waits for a heartbeat, and there is none while a rebalance waits for the end of this transaction. If partitions are
	// lost now, it is aborted.
	session.AllowRebalance()
	hasCommitted, err := session.End(context.Background(), kgo.TransactionEndTry(isComplete))
	if err != nil || !hasCommitted {
		return map[int32]int64{}, err
	}
	return offsets, nil
}
