package org.apache.flink.connector.kafka.sink;

import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A Flink job in one JVM that writes v0, v1, … exactly once, ten records a checkpoint. Before the commit of one
 * checkpoint the JVM is halted: the checkpoint is complete, and its transactions are open.
 *
 * <p>Arguments: bootstrap servers, topic (also the prefix of transactional ids), directory of checkpoints, number of
 * records, the checkpoint before whose commit it is halted (0: never), the state threshold in bytes, the naming
 * strategy, and the checkpoint to restore ("-": none). It is in the sink's package, whose constructor is not public.
 */
public final class SavedJob {
    /** A KafkaSink whose committer halts the JVM. */
    static final class HaltingSink extends KafkaSink<String> {
        private static final AtomicInteger COMMITS = new AtomicInteger();
        private final int haltAt;

        HaltingSink(
                Properties properties,
                String prefix,
                KafkaRecordSerializationSchema<String> schema,
                TransactionNamingStrategy strategy,
                int haltAt) {
            super(DeliveryGuarantee.EXACTLY_ONCE, properties, prefix, schema, strategy);
            this.haltAt = haltAt;
        }

        @Override
        public Committer<KafkaCommittable> createCommitter(CommitterInitContext context) {
            Committer<KafkaCommittable> committer = super.createCommitter(context);
            return new Committer<>() {
                @Override
                public void commit(java.util.Collection<CommitRequest<KafkaCommittable>> requests)
                        throws java.io.IOException, InterruptedException {
                    if (!requests.isEmpty() && COMMITS.incrementAndGet() == haltAt) {
                        Runtime.getRuntime().halt(9);
                    }
                    committer.commit(requests);
                }

                @Override
                public void close() throws Exception {
                    committer.close();
                }
            };
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "300 ms");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[2]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.data-inline-threshold", arguments[5] + " b");
        settings.setString("restart-strategy.type", "none");
        if (!arguments[7].equals("-")) {
            settings.setString("execution.state-recovery.path", arguments[7]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        GeneratorFunction<Long, String> values = number -> "v" + number;
        DataGeneratorSource<String> source =
                new DataGeneratorSource<>(
                        values,
                        Long.parseLong(arguments[3]),
                        RateLimiterStrategy.perCheckpoint(10),
                        Types.STRING);
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", arguments[0]);
        properties.setProperty("transaction.timeout.ms", "600000");
        properties.setProperty("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        properties.setProperty("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaRecordSerializationSchema<String> schema =
                KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments[1])
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build();
        TransactionNamingStrategy strategy = TransactionNamingStrategy.valueOf(arguments[6]);
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "numbers")
                .sinkTo(new HaltingSink(properties, arguments[1], schema, strategy, Integer.parseInt(arguments[4])))
                .uid("sink")
                .name("sink");
        environment.execute("saved");
    }
}
