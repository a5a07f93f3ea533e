import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;

/**
 * Counts the words of topic "lines" into topic "counts", exactly once: `WordCount ADDRESS STATE-DIRECTORY`, until its
 * standard input ends. Nothing is cached, so that every step of every count is a record of its own.
 */
public class WordCount {
  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("state.dir", arguments[1]);
    settings.put("application.id", "word-count");
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "2");
    settings.put("commit.interval.ms", "100");
    settings.put("statestore.cache.max.bytes", "0");
    settings.put("default.key.serde", Serdes.StringSerde.class.getName());
    settings.put("default.value.serde", Serdes.StringSerde.class.getName());
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> lines = builder.stream("lines");
    lines
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word)
        .count()
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to("counts");
    CountDownLatch failed = new CountDownLatch(1);
    try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
      streams.setUncaughtExceptionHandler(
          error -> {
            error.printStackTrace();
            failed.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
          });
      streams.start();
      while (System.in.read() >= 0) {}
      streams.close(Duration.ofSeconds(10));
    }
    System.exit(failed.getCount() == 0 ? 1 : 0);
  }
}
