import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional copier that does what it is told, a line at a time: `Copier SOURCE COPY GROUP PARTITION ID TIMEOUT_MS
 * KEY=VALUE…`. Its answer is `ok …`, `abortable WHY` (abort, and go on) or `giveup WHY` (another instance has to).
 */
public class Copier {
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final TopicPartition source;
    private final String copy;
    private final ArrayDeque<ConsumerRecord<String, String>> waiting = new ArrayDeque<>();
    private final List<Future<RecordMetadata>> pending = new ArrayList<>();

    private Copier(String[] arguments) {
        Properties common = new Properties();
        for (int index = 6; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            common.put(pair[0], pair[1]);
        }
        common.put("retry.backoff.ms", "10");
        common.put("reconnect.backoff.ms", "10");
        common.put("reconnect.backoff.max.ms", "100");
        common.put("request.timeout.ms", "5000");
        common.put("default.api.timeout.ms", "10000");
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", arguments[2]);
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("fetch.max.wait.ms", "20");
        consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        Properties producing = new Properties();
        producing.putAll(common);
        producing.remove("default.api.timeout.ms");
        producing.put("transactional.id", arguments[4]);
        producing.put("transaction.timeout.ms", arguments[5]);
        producing.put("delivery.timeout.ms", arguments[5]);
        producing.put("max.block.ms", "10000");
        producing.put("linger.ms", "1");
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        source = new TopicPartition(arguments[0], Integer.parseInt(arguments[3]));
        copy = arguments[1];
    }

    private long committed() {
        OffsetAndMetadata found = consumer.committed(Set.of(source)).get(source);
        return found == null ? 0 : found.offset();
    }

    private String take(int most) {
        if (waiting.isEmpty()) {
            consumer.poll(Duration.ofMillis(50)).forEach(waiting::add);
        }
        List<String> found = new ArrayList<>();
        while (found.size() < most && !waiting.isEmpty()) {
            ConsumerRecord<String, String> record = waiting.poll();
            found.add(record.offset() + "=" + record.value());
        }
        return String.join(" ", found);
    }

    private String flush() throws InterruptedException {
        producer.flush();
        List<String> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : pending) {
            try {
                offsets.add(Long.toString(each.get().offset()));
            } catch (ExecutionException failure) {
                throw failure.getCause() instanceof KafkaException cause ? cause : new KafkaException(failure);
            }
        }
        pending.clear();
        return String.join(" ", offsets);
    }

    private void sendOffsets(String[] words) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int index = 1; index < words.length; index++) {
            String[] pair = words[index].split("=");
            TopicPartition partition = new TopicPartition(source.topic(), Integer.parseInt(pair[0]));
            offsets.put(partition, new OffsetAndMetadata(Long.parseLong(pair[1])));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private String carryOut(String[] words) throws InterruptedException {
        switch (words[0]) {
            case "start" -> {
                untilDone(producer::initTransactions);
                consumer.assign(Set.of(source));
            }
            case "take" -> { return take(Integer.parseInt(words[1])); }
            case "rewind" -> {
                waiting.clear();
                consumer.seek(source, committed());
            }
            case "committed" -> { return Long.toString(committed()); }
            case "begin" -> {
                pending.clear();
                producer.beginTransaction();
            }
            case "write" -> pending.add(producer.send(new ProducerRecord<>(copy, Integer.parseInt(words[1]), null, words[2])));
            case "offsets" -> sendOffsets(words);
            case "flush" -> { return flush(); }
            case "commit" -> untilDone(producer::commitTransaction);
            case "abort" -> untilDone(producer::abortTransaction);
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    /** A call that has timed out is not over: nothing but the same may follow. */
    private static void untilDone(Runnable call) {
        for (int attempt = 0; ; attempt++) {
            try {
                call.run();
                return;
            } catch (TimeoutException failure) {
                if (attempt == 15) {
                    throw new IllegalStateException(failure);
                }
            }
        }
    }

    private String answer(String line) throws InterruptedException {
        try {
            return "ok " + carryOut(line.split(" "));
        } catch (ApplicationRecoverableException | InvalidConfigurationException failure) {
            return "giveup " + failure;
        } catch (KafkaException failure) {
            return (line.equals("start") || line.equals("abort") ? "giveup " : "abortable ") + failure;
        } catch (IllegalStateException failure) {
            return "giveup " + failure;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Copier copier = new Copier(arguments);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(copier.answer(line).lines().collect(Collectors.joining(" ")));
            System.out.flush();
        }
        System.exit(0);
    }
}
