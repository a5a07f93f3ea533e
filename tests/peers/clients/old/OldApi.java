import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * The old Java API of Kafka 0.8 to 1.0, a command a run: what it does and reads goes to the standard output.
 *
 * produce HOST:PORT TOPIC CODEC COUNT | fetch HOST:PORT TOPIC OFFSET SIZE | offsets HOST:PORT TOPIC
 * commit HOST:PORT TOPIC GROUP VERSION OFFSET | committed HOST:PORT TOPIC GROUP VERSION
 */
public class OldApi {
    public static void main(String[] arguments) throws Exception {
        String broker = arguments[1];
        String topic = arguments[2];
        if (arguments[0].equals("produce")) {
            produce(broker, topic, arguments[3], Integer.parseInt(arguments[4]));
            return;
        }
        String[] parts = broker.split(":");
        SimpleConsumer consumer = new SimpleConsumer(parts[0], Integer.parseInt(parts[1]), 30000, 65536, "old");
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        switch (arguments[0]) {
            case "fetch":
                fetch(consumer, topic, Long.parseLong(arguments[3]), Integer.parseInt(arguments[4]));
                break;
            case "offsets":
                offsets(consumer, partition);
                break;
            case "commit":
                commit(consumer, partition, arguments[3], Short.parseShort(arguments[4]), Long.parseLong(arguments[5]));
                break;
            case "committed":
                committed(consumer, partition, arguments[3], Short.parseShort(arguments[4]));
                break;
            default:
                throw new IllegalArgumentException(arguments[0]);
        }
        consumer.close();
    }

    private static void produce(String broker, String topic, String codec, int count) {
        Properties properties = new Properties();
        properties.put("metadata.broker.list", broker);
        properties.put("serializer.class", "kafka.serializer.StringEncoder");
        properties.put("request.required.acks", "-1");
        properties.put("compression.codec", codec);
        Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            messages.add(new KeyedMessage<>(topic, "key " + i, codec + " " + i));
        }
        producer.send(messages);
        producer.close();
    }

    private static void fetch(SimpleConsumer consumer, String topic, long offset, int size) throws Exception {
        FetchResponse response =
            consumer.fetch(new FetchRequestBuilder().clientId("old").addFetch(topic, 0, offset, size).build());
        System.out.println("error " + response.errorCode(topic, 0) + " end " + response.highWatermark(topic, 0));
        for (MessageAndOffset each : response.messageSet(topic, 0)) {
            System.out.println(each.offset() + " " + text(each.message().key()) + " = " + text(each.message().payload()));
        }
        System.out.println("bytes " + (response.messageSet(topic, 0).sizeInBytes() > 0));
    }

    private static String text(ByteBuffer buffer) throws Exception {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return new String(bytes, "UTF-8");
    }

    private static void offsets(SimpleConsumer consumer, TopicAndPartition partition) {
        for (long time : new long[] {-2, -1}) {
            Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
            asked.put(partition, new PartitionOffsetRequestInfo(time, 10));
            long[] found = consumer
                .getOffsetsBefore(new OffsetRequest(asked, (short) 0, "old"))
                .offsets(partition.topic(), partition.partition());
            System.out.println(time + " " + java.util.Arrays.toString(found));
        }
    }

    private static void commit(SimpleConsumer consumer, TopicAndPartition partition, String group, short version, long to) {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(partition, OffsetAndMetadata.apply(to, "by hand", -1L));
        Map<?, ?> errors =
            consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 1, "old", version)).errors();
        System.out.println("error " + errors.get(partition));
    }

    private static void committed(SimpleConsumer consumer, TopicAndPartition partition, String group, short version) {
        OffsetMetadataAndError found = consumer
            .fetchOffsets(new OffsetFetchRequest(group, Collections.singletonList(partition), version, 1, "old"))
            .offsets()
            .get(partition);
        System.out.println("offset " + found.offset() + " error " + found.error());
    }
}
