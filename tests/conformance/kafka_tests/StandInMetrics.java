package oncelog.tests;

import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import java.lang.reflect.Method;
import java.util.List;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.mockito.Mockito;

/** Metrics that tests look up in the registry of their own process: sums over the brokers' pages of metrics. */
final class StandInMetrics {
    private static final String GROUP = "kafka.server";
    private static final String TYPE = "ShareGroupMetrics";
    private static final String NAME = "RecordAcknowledgementsPerSec";

    private StandInMetrics() {
    }

    static void register(Brokers brokers) {
        for (String kind : List.of("Accept", "Release", "Reject", "Renew")) {
            String sample = "oncelog_share_acknowledged_records_total{type=\"" + kind.toLowerCase() + "\"}";
            Meter meter = Mockito.mock(Meter.class);
            Mockito.when(meter.count()).thenAnswer(call -> (long) brokers.metric(sample));
            String full = GROUP + ":type=" + TYPE + ",name=" + NAME + ",ackType=" + kind;
            replace(new MetricName(GROUP, TYPE, NAME, "ackType." + kind, full), meter);
        }
    }

    private static void replace(MetricName name, Metric metric) {
        MetricsRegistry registry = KafkaYammerMetrics.defaultRegistry();
        registry.removeMetric(name);
        try {
            Method add = MetricsRegistry.class.getDeclaredMethod("getOrAdd", MetricName.class, Metric.class);
            add.setAccessible(true);
            add.invoke(registry, name, metric);
        } catch (ReflectiveOperationException failure) {
            throw new RuntimeException(failure);
        }
    }
}
