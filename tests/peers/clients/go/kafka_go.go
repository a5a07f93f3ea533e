package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafka-go has its own codecs, groups and requests: every codec, a group that goes on where it stopped, a transaction
// of bare requests.
func kafkaGo(ctx context.Context, address string) {
	topic := "kafka-go"
	requests := &kafka.Client{Addr: kafka.TCP(address)}
	created, err := requests.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	must(err, "create")
	must(created.Errors[topic], "create "+topic)
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer := &kafka.Writer{
			Addr: kafka.TCP(address), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
			BatchTimeout: 5 * time.Millisecond,
		}
		var messages []kafka.Message
		for number := 0; number < 20; number++ {
			messages = append(messages, kafka.Message{
				Key: []byte("k"), Value: []byte(fmt.Sprintf("%d-%040d", codec, number)),
				Headers: []kafka.Header{{Key: "h", Value: []byte("1")}},
			})
		}
		must(writer.WriteMessages(ctx, messages...), "write")
		must(writer.Close(), "close writer")
	}
	for _, half := range []int64{0, 50} { // the second reader begins where the first committed
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{address}, GroupID: "kafka-go", Topic: topic, IsolationLevel: kafka.ReadCommitted,
			MaxWait: 200 * time.Millisecond,
		})
		for offset := half; offset < half+50; offset++ {
			message, err := reader.FetchMessage(ctx)
			must(err, "fetch")
			if message.Offset != offset {
				fail("offset %d, not %d", message.Offset, offset)
			}
			if offset == half+49 {
				must(reader.CommitMessages(ctx, message), "commit")
			}
		}
		must(reader.Close(), "close reader")
	}
	kafkaGoTransaction(ctx, requests, topic)
}

func kafkaGoTransaction(ctx context.Context, requests *kafka.Client, topic string) {
	started, err := requests.InitProducerID(ctx, &kafka.InitProducerIDRequest{
		TransactionalID: topic, TransactionTimeoutMs: 30_000,
	})
	must(err, "init")
	must(started.Error, "init")
	added, err := requests.AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
		TransactionalID: topic, ProducerID: started.Producer.ProducerID, ProducerEpoch: started.Producer.ProducerEpoch,
		Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}},
	})
	must(err, "add")
	must(added.Topics[topic][0].Error, "add")
	ended, err := requests.EndTxn(ctx, &kafka.EndTxnRequest{
		TransactionalID: topic, ProducerID: started.Producer.ProducerID, ProducerEpoch: started.Producer.ProducerEpoch,
		Committed: true,
	})
	must(err, "end")
	must(ended.Error, "end")
}
