package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// copier is a transactional copier that does what it is told, a line at a time, as Copier.java is; its partition is
// assigned, so its offsets are committed by requests of its own, which groups would make.
type copier struct {
	producer, consumer  *kgo.Client
	admin               *kadm.Client
	common              []kgo.Opt
	source, copy, group string
	partition           int32
	id                  string
	sourceID            [16]byte
	waiting             []*kgo.Record
	failed              error
	offsets             []string
}

func newCopier(address string, words []string) *copier {
	partition, err := strconv.Atoi(words[3])
	must(err, "partition")
	milliseconds, err := strconv.Atoi(words[5])
	must(err, "timeout")
	timeout := time.Duration(milliseconds) * time.Millisecond
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
	}
	producer, err := kgo.NewClient(append([]kgo.Opt{
		kgo.TransactionalID(words[4]), kgo.TransactionTimeout(timeout), kgo.RecordDeliveryTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond),
	}, common...)...)
	must(err, "producer")
	return &copier{
		producer: producer, admin: kadm.NewClient(producer), common: common, source: words[0], copy: words[1],
		group: words[2], partition: int32(partition), id: words[4],
	}
}

func (one *copier) committed(ctx context.Context) (int64, error) {
	found, err := one.admin.FetchOffsets(ctx, one.group)
	if err != nil {
		return 0, err
	}
	offset, there := found.Lookup(one.source, one.partition)
	if !there || offset.At < 0 {
		return 0, offset.Err
	}
	return offset.At, offset.Err
}

// rewind begins to consume anew: SetOffsets passes over partitions that no poll has returned yet.
func (one *copier) rewind(ctx context.Context) error {
	offset, err := one.committed(ctx)
	if err != nil {
		return err
	}
	if one.consumer != nil {
		one.consumer.Close()
	}
	one.waiting = nil
	start := map[string]map[int32]kgo.Offset{one.source: {one.partition: kgo.NewOffset().At(offset)}}
	one.consumer, err = kgo.NewClient(append([]kgo.Opt{
		kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(20 * time.Millisecond),
	}, one.common...)...)
	return err
}

func (one *copier) take(ctx context.Context, most int) string {
	if len(one.waiting) == 0 {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		one.waiting = one.consumer.PollRecords(ctx, 500).Records()
	}
	count := min(most, len(one.waiting))
	var found []string
	for _, record := range one.waiting[:count] {
		found = append(found, fmt.Sprintf("%d=%s", record.Offset, record.Value))
	}
	one.waiting = one.waiting[count:]
	return strings.Join(found, " ")
}

func (one *copier) write(partition string, value string) error {
	number, err := strconv.Atoi(partition)
	if err != nil {
		return err
	}
	place := len(one.offsets)
	one.offsets = append(one.offsets, "")
	record := &kgo.Record{Topic: one.copy, Partition: int32(number), Value: []byte(value)}
	one.producer.Produce(context.Background(), record, func(record *kgo.Record, err error) {
		if err != nil {
			one.failed = err // promises are called one after the other, and all of them before Flush returns
			return
		}
		one.offsets[place] = strconv.FormatInt(record.Offset, 10)
	})
	return nil
}

func (one *copier) flush(ctx context.Context) (string, error) {
	if err := one.producer.Flush(ctx); err != nil {
		return "", err
	}
	return strings.Join(one.offsets, " "), one.failed
}

func (one *copier) sendOffsets(ctx context.Context, words []string) error {
	producer, epoch, err := one.producer.ProducerID(ctx)
	if err != nil {
		return err
	}
	adding := kmsg.NewPtrAddOffsetsToTxnRequest()
	adding.TransactionalID, adding.ProducerID, adding.ProducerEpoch, adding.Group = one.id, producer, epoch, one.group
	for {
		added, err := adding.RequestWith(ctx, one.producer)
		if err == nil {
			err = kerr.ErrorForCode(added.ErrorCode)
		}
		if err == nil {
			break
		}
		if !isWorthRepeating(ctx, err) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	id, err := one.idOfSource(ctx)
	if err != nil {
		return err
	}
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = one.source, id // from version 6 on a topic is named by its id
	for _, word := range words {
		partition, offset, _ := strings.Cut(word, "=")
		each := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		number, _ := strconv.Atoi(partition)
		each.Partition = int32(number)
		each.Offset, _ = strconv.ParseInt(offset, 10, 64)
		topic.Partitions = append(topic.Partitions, each)
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch, request.Group = one.id, producer, epoch, one.group
	request.Topics = append(request.Topics, topic)
	for {
		err := committedBy(request.RequestWith(ctx, one.producer))
		if err == nil || !isWorthRepeating(ctx, err) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (one *copier) idOfSource(ctx context.Context) ([16]byte, error) {
	for one.sourceID == [16]byte{} {
		topics, err := one.admin.ListTopics(ctx, one.source)
		if err == nil {
			err = topics[one.source].Err
		}
		if err == nil {
			one.sourceID = topics[one.source].ID
		} else if !isWorthRepeating(ctx, err) {
			return one.sourceID, err
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return one.sourceID, nil
}

// isWorthRepeating is true for what passes: brokers that move, and those that are gone.
func isWorthRepeating(ctx context.Context, err error) bool {
	var refusal *kerr.Error
	return ctx.Err() == nil && (kerr.IsRetriable(err) || !errors.As(err, &refusal))
}

func committedBy(answer *kmsg.TxnOffsetCommitResponse, err error) error {
	if err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (one *copier) end(ctx context.Context, commit kgo.TransactionEndTry) error {
	if !commit {
		if err := one.producer.AbortBufferedRecords(ctx); err != nil {
			return err
		}
	}
	return one.producer.EndTransaction(ctx, commit)
}

func (one *copier) carryOut(ctx context.Context, words []string) (string, error) {
	switch words[0] {
	case "start":
		_, _, err := one.producer.ProducerID(ctx)
		return "", err
	case "take":
		most, err := strconv.Atoi(words[1])
		return one.take(ctx, most), err
	case "rewind":
		return "", one.rewind(ctx)
	case "committed":
		offset, err := one.committed(ctx)
		return strconv.FormatInt(offset, 10), err
	case "begin":
		one.failed, one.offsets = nil, nil
		return "", one.producer.BeginTransaction()
	case "write":
		return "", one.write(words[1], words[2])
	case "offsets":
		return "", one.sendOffsets(ctx, words[1:])
	case "flush":
		return one.flush(ctx)
	case "commit":
		return "", one.end(ctx, kgo.TryCommit)
	case "abort":
		return "", one.end(ctx, kgo.TryAbort)
	}
	return "", fmt.Errorf("no order %s", words[0])
}

// runCopier reads orders until its input ends. What fails may be aborted, but for a commit, whose outcome is unknown then,
// and but for the third failure in a row, from which this client does not recover.
func runCopier(address string, words []string) {
	one := newCopier(address, words)
	orders := bufio.NewScanner(os.Stdin)
	failures := 0
	for orders.Scan() {
		order := strings.Fields(orders.Text())
		ctx, cancel := context.WithTimeout(context.Background(), 150*time.Second)
		answer, err := one.carryOut(ctx, order)
		cancel()
		isAbortable := order[0] == "begin" || order[0] == "write" || order[0] == "flush" || order[0] == "offsets"
		switch {
		case err == nil:
			if order[0] == "commit" {
				failures = 0
			}
			fmt.Println("ok " + answer)
		case isAbortable && failures < 2:
			failures++
			fmt.Println("abortable " + strings.ReplaceAll(err.Error(), "\n", " "))
		default:
			fmt.Println("giveup " + strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
}
