// Go's clients (franz-go here, the others in their own files) against one address: `peer ADDRESS SCENARIO`, or a copier that is told what to do: `peer ADDRESS copier SOURCE COPY GROUP PARTITION ID TIMEOUT_MS`, or a member of a group (`member.go`) or of a share group (`share.go`). Exits 1 with a line on stderr when something is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func must(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func client(address string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(address)}, options...)...)
	must(err, "client")
	return made
}

func makeTopic(ctx context.Context, address, name string, partitions int32) *kadm.Client {
	admin := kadm.NewClient(client(address))
	_, err := admin.CreateTopic(ctx, partitions, 1, nil, name)
	must(err, "create "+name)
	return admin
}

func read(ctx context.Context, consumer *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := consumer.PollFetches(ctx)
		for _, fetch := range fetches.Errors() {
			fail("fetch %s-%d: %v", fetch.Topic, fetch.Partition, fetch.Err)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

func produceConsume(ctx context.Context, address string) {
	topic := "go-codecs"
	makeTopic(ctx, address, topic, 1).Close()
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	var sent []string
	for number, codec := range codecs {
		producer := client(address, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond))
		var records []*kgo.Record
		for each := 0; each < 20; each++ {
			value := fmt.Sprintf("%d-%040d", number, each)
			sent = append(sent, value)
			records = append(records, &kgo.Record{
				Topic: topic, Key: []byte("k"), Value: []byte(value), Timestamp: time.UnixMilli(7000),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}},
			})
		}
		must(producer.ProduceSync(ctx, records...).FirstErr(), "produce")
		producer.Close()
	}
	plain := client(address, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	must(plain.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("plain")}).FirstErr(), "plain produce")
	plain.Close()
	sent = append(sent, "plain")
	consumer := client(address, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	for position, record := range read(ctx, consumer, len(sent)) {
		if string(record.Value) != sent[position] || record.Offset != int64(position) {
			fail("record %d is %q at %d", position, record.Value, record.Offset)
		}
	}
}

func groups(ctx context.Context, address string) {
	topic, group := "go-group", "go-group"
	admin := makeTopic(ctx, address, topic, 4)
	defer admin.Close()
	member := func(instance string) *kgo.Client {
		options := []kgo.Opt{
			kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(6 * time.Second),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		}
		if instance != "" {
			options = append(options, kgo.InstanceID(instance))
		}
		return client(address, options...)
	}
	settle := func(members, each int) {
		for {
			described, err := admin.DescribeGroups(ctx, group)
			must(err, "describe")
			found := described[group]
			settled := found.State == "Stable" && len(found.Members) == members
			for _, one := range found.Members {
				assigned, ok := one.Assigned.AsConsumer()
				settled = settled && ok && len(assigned.Topics) == 1 && len(assigned.Topics[0].Partitions) == each
			}
			if settled {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	first := member("")
	settle(1, 4)
	second := member("two")
	settle(2, 2)
	second.Close()
	_, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs("two"))
	must(err, "leave")
	settle(1, 4)
	producer := client(address)
	must(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(), "produce")
	producer.Close()
	read(ctx, first, 1)
	must(first.CommitUncommittedOffsets(ctx), "commit")
	first.Close()
	lag, err := admin.Lag(ctx, group)
	must(err, "lag")
	if total := lag[group].Lag.Total(); total != 0 {
		fail("lag %d", total)
	}
	_, err = admin.DeleteGroups(ctx, group)
	must(err, "delete group")
}

func adminScenario(ctx context.Context, address string) {
	topic := "go-admin"
	admin := makeTopic(ctx, address, topic, 2)
	defer admin.Close()
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		fail("create again: %v", err)
	}
	if _, err := admin.CreateTopic(ctx, 1, 7, nil, "go-seven"); !errors.Is(err, kerr.InvalidReplicationFactor) {
		fail("seven replicas: %v", err)
	}
	_, err := admin.CreatePartitions(ctx, 1, topic)
	must(err, "partitions")
	value := "5000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, topic)
	must(err, "alter")
	must(altered[0].Err, "alter "+topic)
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err, "describe configs")
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" && config.MaybeValue() != "5000" {
			fail("retention.ms is %s", config.MaybeValue())
		}
	}
	producer := client(address)
	must(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(), "produce")
	producer.Close()
	ends, err := admin.ListEndOffsets(ctx, topic)
	must(err, "end offsets")
	must(ends.Error(), "end offsets")
	_, err = admin.ListOffsetsAfterMilli(ctx, 1, topic)
	must(err, "offsets after")
	_, err = admin.DeleteRecords(ctx, ends.Offsets())
	must(err, "delete records")
	_, err = admin.DescribeAllLogDirs(ctx, nil)
	must(err, "log dirs")
	_, err = admin.ApiVersions(ctx)
	must(err, "api versions")
	_, err = admin.ListGroups(ctx)
	must(err, "list groups")
	_, err = admin.BrokerMetadata(ctx)
	must(err, "metadata")
	_, err = admin.DeleteTopics(ctx, topic)
	must(err, "delete")
}

func errorsScenario(ctx context.Context, address string) {
	topic := "go-errors"
	makeTopic(ctx, address, topic, 1).Close()
	producer := client(address, kgo.UnknownTopicRetries(1), kgo.ProducerBatchMaxBytes(4<<20),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	large := &kgo.Record{Topic: topic, Value: make([]byte, 2<<20)}
	if err := producer.ProduceSync(ctx, large).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
		fail("a large record: %v", err)
	}
	bad := &kgo.Record{Topic: "bad name", Value: []byte("v")}
	if err := producer.ProduceSync(ctx, bad).FirstErr(); !errors.Is(err, kerr.InvalidTopicException) {
		fail("a bad name: %v", err)
	}
	consumer := client(address, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().At(100)},
	}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer consumer.Close()
	for _, fetch := range consumer.PollFetches(ctx).Errors() {
		if errors.Is(fetch.Err, kerr.OffsetOutOfRange) {
			return
		}
	}
	fail("an offset out of range was not refused")
}

func main() {
	if os.Args[2] == "copier" {
		runCopier(os.Args[1], os.Args[3:])
		return
	}
	if os.Args[2] == "member" {
		runMember(os.Args[1], os.Args[3:])
		return
	}
	if os.Args[2] == "share" {
		runShareMember(os.Args[1], os.Args[3:])
		return
	}
	scenarios := map[string]func(context.Context, string){
		"produce-consume": produceConsume, "groups": groups, "admin": adminScenario, "errors": errorsScenario,
		"transactions-commit-abort": commitAndAbort, "transactions-offsets": offsetsInside,
		"transactions-fencing": fencing,
		"sarama-2.1":           saramaScenario(sarama.V2_1_0_0), "sarama-2.8": saramaScenario(sarama.V2_8_0_0),
		"sarama-max": saramaScenario(sarama.MaxVersion), "kafka-go": kafkaGo,
		"security": franzGoSecurity, "sarama-security": saramaSecurity,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	run, ok := scenarios[os.Args[2]]
	if !ok {
		fail("no scenario %s", os.Args[2])
	}
	run(ctx, os.Args[1])
	if ctx.Err() != nil {
		fail("out of time")
	}
}
