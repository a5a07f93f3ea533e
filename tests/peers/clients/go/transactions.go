package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func value(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Value: []byte(value), Timestamp: time.UnixMilli(7000)}
}

func transactional(address, id string) *kgo.Client {
	return client(address, kgo.TransactionalID(id), kgo.TransactionTimeout(20*time.Second))
}

func expectValues(ctx context.Context, address, topic string, level kgo.IsolationLevel, expected ...string) {
	consumer := client(address, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(level))
	defer consumer.Close()
	for position, record := range read(ctx, consumer, len(expected)) {
		if string(record.Value) != expected[position] {
			fail("%s: record %d is %q, not %q", topic, position, record.Value, expected[position])
		}
	}
}

func one(ctx context.Context, producer *kgo.Client, commit kgo.TransactionEndTry, records ...*kgo.Record) error {
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	for _, record := range records {
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return producer.EndTransaction(ctx, commit)
}

// Partitions are added by the Produce itself, and the epoch rises with every end (KIP-890).
func commitAndAbort(ctx context.Context, address string) {
	makeTopic(ctx, address, "gt-one", 1).Close()
	makeTopic(ctx, address, "gt-two", 1).Close()
	producer := transactional(address, "gt-commit")
	defer producer.Close()
	before := int16(-1)
	for number := 0; number < 4; number++ {
		records := []*kgo.Record{
			value("gt-one", fmt.Sprintf("a%d", number)), value("gt-one", fmt.Sprintf("b%d", number)),
			value("gt-two", fmt.Sprintf("c%d", number)),
		}
		must(one(ctx, producer, kgo.TransactionEndTry(number%2 == 0), records...), "transaction")
		_, epoch, err := producer.ProducerID(ctx)
		must(err, "producer id")
		if epoch <= before {
			fail("the epoch went from %d to %d", before, epoch)
		}
		before = epoch
	}
	expectValues(ctx, address, "gt-one", kgo.ReadCommitted(), "a0", "b0", "a2", "b2")
	expectValues(ctx, address, "gt-one", kgo.ReadUncommitted(), "a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3")
	expectValues(ctx, address, "gt-two", kgo.ReadCommitted(), "c0", "c2")
}

func offsetsInside(ctx context.Context, address string) {
	source, sink := "gt-source", "gt-sink"
	makeTopic(ctx, address, source, 1).Close()
	admin := makeTopic(ctx, address, sink, 1)
	defer admin.Close()
	plain := client(address)
	for number := 0; number < 6; number++ {
		must(plain.ProduceSync(ctx, value(source, fmt.Sprint(number))).FirstErr(), "fill")
	}
	plain.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address), kgo.TransactionalID("gt-copy"), kgo.ConsumerGroup("gt-group"), kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	must(err, "session")
	copied := 0
	for _, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryCommit} {
		must(session.Begin(), "begin")
		fetched := session.PollRecords(ctx, 3)
		must(fetched.Err(), "poll")
		for _, record := range fetched.Records() {
			must(session.ProduceSync(ctx, value(sink, string(record.Value))).FirstErr(), "copy")
		}
		committed, err := session.End(ctx, commit)
		must(err, "end")
		if committed != bool(commit) {
			fail("committed: %v", committed)
		}
		if committed {
			copied += fetched.NumRecords()
		}
	}
	session.Close()
	expectValues(ctx, address, sink, kgo.ReadCommitted(), "0", "1", "2", "3", "4", "5")
	offsets, err := admin.FetchOffsets(ctx, "gt-group")
	must(err, "offsets")
	if found, _ := offsets.Lookup(source, 0); found.At != int64(copied) || copied != 6 {
		fail("%d copied, %d committed", copied, found.At)
	}
}

func fencing(ctx context.Context, address string) {
	makeTopic(ctx, address, "gt-fenced", 1).Close()
	first := transactional(address, "gt-fencing")
	defer first.Close()
	must(one(ctx, first, kgo.TryCommit, value("gt-fenced", "first")), "first")
	second := transactional(address, "gt-fencing")
	defer second.Close()
	must(one(ctx, second, kgo.TryCommit, value("gt-fenced", "second")), "second")
	err := one(ctx, first, kgo.TryCommit, value("gt-fenced", "zombie"))
	if !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
		fail("the first instance was not fenced: %v", err)
	}
	expectValues(ctx, address, "gt-fenced", kgo.ReadCommitted(), "first", "second")
}
