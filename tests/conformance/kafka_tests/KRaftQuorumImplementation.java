package kafka.server;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import kafka.utils.Logging;
import oncelog.tests.Brokers;
import oncelog.tests.StandIns;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.fault.FaultHandler;
import scala.Option;

/**
 * Runs Apache Kafka's tests that have brokers of their own (`QuorumTestHarness`) against processes of oncelog. It takes
 * the place of the class of this name there; the controller that it is given is not used, but for its features.
 */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final Brokers brokers = new Brokers();
    private final StandIns standIns = new StandIns(brokers);
    private final ControllerServer controller;
    private final String clusterId;

    public KRaftQuorumImplementation(ControllerServer given, FaultHandlerFactory handlers, File directory,
        CompletableFuture<Map<Integer, InetSocketAddress>> voters, String clusterId, Logging log, FaultHandler handler) {
        String transactions = "transaction.version";
        brokers.setFeatures(Map.of(transactions, given.bootstrapMetadata().featureLevel(transactions)));
        controller = standIns.controller(given.config());
        this.clusterId = clusterId;
        given.shutdown();
    }

    public ControllerServer controllerServer() {
        return controller;
    }

    public String clusterId() {
        return clusterId;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> prefix) {
        try {
            brokers.configure(config.nodeId(), config.originals());
        } catch (IOException failure) {
            throw new RuntimeException(failure);
        }
        if (startup) {
            brokers.start(config.nodeId());
        }
        return standIns.broker(config.nodeId(), config);
    }

    @Override
    public void shutdown() {
        brokers.close();
    }
}
