// Kafka's old high-level consumer, of 0.8.2.2 to 1.0.2: prints each record as "topic partition offset value", a line
// at a time, so that nothing it has consumed is unseen when it is killed. SIGTERM shuts it down in order.
// Arguments: a properties file, then "topics" and names, or "white_list" or "black_list" and an expression.

import java.io.FileInputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Blacklist;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

public class OldConsumer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            properties.load(file);
        }
        int threads = Integer.parseInt(properties.getProperty("streams", "1"));
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(properties));
        List<KafkaStream<byte[], byte[]>> streams = new ArrayList<>();
        if (arguments[1].equals("topics")) {
            Map<String, Integer> counts = new HashMap<>();
            for (int i = 2; i < arguments.length; i++) {
                counts.put(arguments[i], threads);
            }
            connector.createMessageStreams(counts).values().forEach(streams::addAll);
        } else if (arguments[1].equals("white_list")) {
            streams.addAll(connector.createMessageStreamsByFilter(new Whitelist(arguments[2]), threads));
        } else {
            streams.addAll(connector.createMessageStreamsByFilter(new Blacklist(arguments[2]), threads));
        }
        Runtime.getRuntime().addShutdownHook(new Thread(connector::shutdown));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        List<Thread> readers = new ArrayList<>();
        for (KafkaStream<byte[], byte[]> stream : streams) {
            Thread reader = new Thread(() -> read(stream, out));
            reader.start();
            readers.add(reader);
        }
        for (Thread reader : readers) {
            reader.join();
        }
    }

    private static void read(KafkaStream<byte[], byte[]> stream, PrintStream out) {
        ConsumerIterator<byte[], byte[]> iterator = stream.iterator();
        while (iterator.hasNext()) {
            MessageAndMetadata<byte[], byte[]> record = iterator.next();
            String value = record.message() == null ? "" : new String(record.message());
            String line = record.topic() + " " + record.partition() + " " + record.offset() + " " + value + "\n";
            byte[] bytes = line.getBytes();
            synchronized (out) {
                out.write(bytes, 0, bytes.length);
                out.flush();
            }
        }
    }
}
