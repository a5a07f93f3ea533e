import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a share group that does as it is told, see tests/peers/clients/share_member.py: `ShareMember BOOTSTRAP GROUP TOPIC MODE ACQUIRE RECORDS`. */
public class ShareMember {
    private final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, ConsumerRecord<byte[], byte[]>> records = new HashMap<>();
    private final KafkaShareConsumer<byte[], byte[]> consumer;

    private ShareMember(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[3]);
        settings.put("share.acquire.mode", arguments[4].replace('-', '_'));
        settings.put("max.poll.records", arguments[5]);
        settings.put("fetch.max.wait.ms", "50");
        settings.put("retry.backoff.ms", "20");
        consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments[2]));
    }

    private String poll(long waitMs) {
        ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(waitMs));
        StringBuilder told = new StringBuilder("[");
        for (ConsumerRecord<byte[], byte[]> record : polled) {
            records.put(record.partition() + " " + record.offset(), record);
            told.append(told.length() == 1 ? "" : ", ").append("[" + record.partition() + ", " + record.offset() + ", "
                + record.deliveryCount().orElse((short) 0) + ", \"" + new String(record.value(), StandardCharsets.UTF_8) + "\"]");
        }
        return told + "]";
    }

    private String acknowledge(String type, String partition, String offset) {
        consumer.acknowledge(
            records.get(partition + " " + offset), AcknowledgeType.valueOf(type.toUpperCase(Locale.ROOT)));
        return "null";
    }

    private String commit() {
        return "[" + consumer.commitSync(Duration.ofSeconds(60)).entrySet().stream()
            .map(each -> "[" + each.getKey().partition() + ", "
                + each.getValue().map(error -> quoted(error.toString())).orElse("null") + "]")
            .collect(Collectors.joining(", ")) + "]";
    }

    private static String quoted(String text) {
        return "\"" + text.replace('"', '\'').replace('\\', '/').replace('\n', ' ') + "\"";
    }

    private String answer(String[] words) {
        switch (words[0]) {
            case "poll":
                return poll(Long.parseLong(words[1]));
            case "acknowledge":
                return acknowledge(words[1], words[2], words[3]);
            case "commit":
                return commit();
            default:
                consumer.close();
                return "null";
        }
    }

    private void run() throws java.io.IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                answers.println("{\"ok\": " + answer(line.split(" ")) + "}");
            } catch (RuntimeException failure) {
                answers.println("{\"error\": " + quoted(failure.toString()) + "}");
            }
        }
    }

    public static void main(String[] arguments) throws java.io.IOException {
        new ShareMember(arguments).run();
        Runtime.getRuntime().halt(0);
    }
}
