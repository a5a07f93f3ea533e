import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A member of a consumer group, see tests/cluster/member_process.py: `Member BOOTSTRAP TOPIC GROUP PROTOCOL SESSION_MS`.
 * In the protocol `pattern` it subscribes by an expression that the coordinator matches (KIP-848). Commits are asynchronous.
 * With `OUTPUT TRANSACTIONAL_ID TIMEOUT_MS` it commits in transactions (tests/cluster/transactional_members.py).
 */
public class Member implements ConsumerRebalanceListener {
    private static final int GIVEN_UP = 3;
    private final BufferedReader answers = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final PrintStream questions = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<Integer, Long> acknowledged = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String output;
    private final String id;
    private KafkaProducer<byte[], byte[]> producer;

    private Member(String[] arguments) {
        boolean isClassic = arguments[3].equals("classic");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("group.protocol", isClassic ? "classic" : "consumer");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("max.poll.records", "50");
        settings.put("retry.backoff.ms", "20");
        if (isClassic) {
            settings.put("session.timeout.ms", arguments[4]);
            settings.put("heartbeat.interval.ms", "500");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        output = arguments.length > 5 ? arguments[5] : null;
        id = arguments.length > 5 ? arguments[6] : null;
        if (output != null) {
            settings.put("isolation.level", "read_committed");
            producer = producer(arguments[0], arguments[7]);
            producer.initTransactions();
        }
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (arguments[3].equals("pattern")) {
            consumer.subscribe(new SubscriptionPattern(arguments[1] + "|no-such-topic.*"), this);
        } else {
            consumer.subscribe(List.of(arguments[1]), this);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String bootstrap, String timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("delivery.timeout.ms", timeoutMs);
        settings.put("request.timeout.ms", "2000");
        settings.put("linger.ms", "1");
        settings.put("retry.backoff.ms", "20");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Says something, and returns the answer. */
    private String tell(String key, String value) {
        questions.println("{\"" + key + "\": " + value + "}");
        try {
            String answer = answers.readLine();
            if (answer == null) {
                Runtime.getRuntime().halt(1);
            }
            return answer;
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> gained) {
        if (!gained.isEmpty()) {
            tell("assigned", gained.stream().map(each -> each.partition()).collect(Collectors.toList()).toString());
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        // Commits under way are answered before the partitions have gone.
    }

    private void run() {
        while (true) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            Map<TopicPartition, Long> firsts = new HashMap<>();
            List<ProducerRecord<byte[], byte[]>> results = new ArrayList<>();
            StringBuilder taken = new StringBuilder();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                firsts.putIfAbsent(new TopicPartition(record.topic(), record.partition()), record.offset());
                results.add(result(record));
                taken.append(taken.length() == 0 ? "[" : ", ");
                taken.append("[" + record.partition() + ", " + record.offset() + "]");
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            if (!offsets.isEmpty()) {
                tell("taken", taken + "]");
            }
            if (!offsets.isEmpty() && producer != null) {
                transact(offsets, firsts, results);
            } else if (!offsets.isEmpty()) {
                consumer.commitAsync(offsets, (done, failure) -> {
                    if (failure == null) {
                        done.forEach((partition, offset) -> acknowledged.put(partition.partition(), offset.offset()));
                    }
                });
            }
            String committed = acknowledged.entrySet().stream()
                .map(each -> "\"" + each.getKey() + "\": " + each.getValue()).collect(Collectors.joining(", "));
            acknowledged.clear();
            if (tell("committed", "{" + committed + "}").equals("close")) {
                consumer.close();
                return;
            }
        }
    }

    private ProducerRecord<byte[], byte[]> result(ConsumerRecord<byte[], byte[]> record) {
        String value = record.partition() + ":" + record.offset() + " " + id + " java " + ProcessHandle.current().pid();
        return new ProducerRecord<>(
            output == null ? "none" : output, record.partition() % 4, null, value.getBytes(StandardCharsets.UTF_8));
    }

    /** Results and offsets in one transaction; after an abort the same records are taken again. */
    private void transact(
        Map<TopicPartition, OffsetAndMetadata> offsets,
        Map<TopicPartition, Long> firsts,
        List<ProducerRecord<byte[], byte[]>> results) {
        try {
            producer.beginTransaction();
            results.forEach(producer::send);
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
            offsets.forEach((partition, offset) -> acknowledged.put(partition.partition(), offset.offset()));
        } catch (ApplicationRecoverableException | InvalidConfigurationException | TimeoutException failure) {
            System.err.println("java: " + failure);
            Runtime.getRuntime().halt(GIVEN_UP);
        } catch (KafkaException failure) {
            try {
                producer.abortTransaction();
            } catch (KafkaException second) {
                System.err.println("java: " + second + ", aborting after " + failure);
                Runtime.getRuntime().halt(GIVEN_UP);
            }
            firsts.keySet().retainAll(consumer.assignment());
            firsts.forEach(consumer::seek);
        }
    }

    public static void main(String[] arguments) {
        new Member(arguments).run();
    }
}
