package main

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

// counting is a group's member that commits once it has seen as many records as it wants.
type counting struct {
	wanted, seen int
	done         context.CancelFunc
}

func (member *counting) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member *counting) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (member *counting) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if member.seen++; member.seen == member.wanted {
			session.Commit()
			member.done()
		}
	}
	return nil
}

// A client of that version of Kafka: transactions with offsets inside, a group at read_committed, and what an
// administrator asks.
func saramaScenario(version sarama.KafkaVersion) func(context.Context, string) {
	return func(ctx context.Context, address string) {
		config := sarama.NewConfig()
		config.Version = version
		config.Net.MaxOpenRequests = 1
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Transaction.ID = "sarama-" + version.String()
		config.Consumer.IsolationLevel = sarama.ReadCommitted
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		topic := "sarama-" + version.String()
		servers := []string{address}
		admin, err := sarama.NewClusterAdmin(servers, config)
		must(err, "admin")
		defer admin.Close()
		must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false), "create")
		saramaTransactions(servers, topic, config)
		saramaGroup(ctx, servers, topic, config)
		saramaAdmin(admin, topic)
	}
}

func saramaTransactions(servers []string, topic string, config *sarama.Config) {
	producer, err := sarama.NewSyncProducer(servers, config)
	must(err, "producer")
	for number := 0; number < 8; number++ {
		must(producer.BeginTxn(), "begin")
		for each := 0; each < 5; each++ {
			value := sarama.StringEncoder(fmt.Sprintf("%d-%d", number, each))
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value})
			must(err, "send")
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: int64(number)}}}
		must(producer.AddOffsetsToTxn(offsets, topic+"-inside"), "offsets")
		if number%4 == 3 {
			must(producer.AbortTxn(), "abort")
		} else {
			must(producer.CommitTxn(), "commit")
		}
	}
	must(producer.Close(), "close")
}

func saramaGroup(ctx context.Context, servers []string, topic string, config *sarama.Config) {
	group, err := sarama.NewConsumerGroup(servers, topic+"-group", config)
	must(err, "group")
	reading, stop := context.WithCancel(ctx)
	member := &counting{wanted: 30, done: stop}
	for reading.Err() == nil {
		must(group.Consume(reading, []string{topic}, member), "consume")
	}
	must(group.Close(), "close group")
	if member.seen != 30 {
		fail("%d committed records, not 30", member.seen)
	}
}

func saramaAdmin(admin sarama.ClusterAdmin, topic string) {
	partition := map[string][]int32{topic: {0}}
	// Eight transactions of five records and a marker: the last that was committed ends before offset 41.
	for group, expected := range map[string]int64{topic + "-inside": 6, topic + "-group": 41} {
		found, err := admin.ListConsumerGroupOffsets(group, partition)
		must(err, "offsets")
		if offset := found.GetBlock(topic, 0).Offset; offset != expected {
			fail("%s committed %d, not %d", group, offset, expected)
		}
	}
	described, err := admin.DescribeConsumerGroups([]string{topic + "-group"})
	must(err, "describe group")
	if described[0].State != "Empty" {
		fail("the group is %s", described[0].State)
	}
	_, err = admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	must(err, "describe config")
	brokers, _, err := admin.DescribeCluster()
	must(err, "cluster")
	_, err = admin.DescribeLogDirs([]int32{brokers[0].ID()})
	must(err, "log dirs")
	must(admin.DeleteRecords(topic, map[int32]int64{0: 5}), "delete records")
	must(admin.CreatePartitions(topic, 3, nil, false), "partitions")
	must(admin.DeleteConsumerGroup(topic+"-group"), "delete group")
	must(admin.DeleteTopic(topic), "delete topic")
}
