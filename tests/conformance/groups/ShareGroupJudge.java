package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.net.InetAddress;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetricsShard;
import org.apache.kafka.coordinator.group.modern.MemberAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.image.*;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Apache Kafka's own group coordinator with share groups, in virtual time: a line of JSON in, a line of JSON out. */
public class ShareGroupJudge {
  static final ObjectMapper JSON = new ObjectMapper();
  static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
  static final int RACKS = 4;
  static long now;
  static MetadataImage image;
  static Timers timers;
  static GroupMetadataManager manager;

  static class Clock implements Time {
    @Override public long milliseconds() { return now; }
    @Override public long nanoseconds() { return now * 1_000_000; }
    @Override public void sleep(long ms) { now += ms; }
    @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { throw new UnsupportedOperationException(); }
    @Override public org.apache.kafka.common.utils.Timer timer(long ms) { throw new UnsupportedOperationException(); }
  }

  record Timeout(String key, long deadline, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) { }

  static class Timers implements CoordinatorTimer<CoordinatorRecord> {
    final Map<String, Timeout> running = new TreeMap<>();
    @Override public void schedule(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation) {
      running.put(key, new Timeout(key, now + unit.toMillis(delay), operation));
    }
    @Override public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff, TimeoutOperation<CoordinatorRecord> operation) {
      schedule(key, delay, unit, retry, operation);
    }
    @Override public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation) {
      if (!running.containsKey(key)) schedule(key, delay, unit, retry, operation);
    }
    @Override public void cancel(String key) { running.remove(key); }
    @Override public boolean isScheduled(String key) { return running.containsKey(key); }
  }

  static class NoTasks implements CoordinatorExecutor<CoordinatorRecord> {
    @Override public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) { throw new IllegalStateException(key); }
    @Override public boolean isScheduled(String key) { return false; }
    @Override public void cancel(String key) { }
  }

  /** Every assignable partition to every subscriber: the order of hash maps has no part in it. */
  static class Everything implements ShareGroupPartitionAssignor {
    @Override public String name() { return "everything"; }
    @Override public GroupAssignment assign(GroupSpec spec, SubscribedTopicDescriber topics) {
      Map<String, MemberAssignment> shares = new HashMap<>();
      for (String member : spec.memberIds()) {
        Map<Uuid, Set<Integer>> share = new HashMap<>();
        for (Uuid topic : spec.memberSubscription(member).subscribedTopicIds()) {
          Set<Integer> numbers = new HashSet<>();
          for (int number = 0; number < topics.numPartitions(topic); number++)
            if (spec.isPartitionAssignable(topic, number)) numbers.add(number);
          if (!numbers.isEmpty()) share.put(topic, numbers);
        }
        shares.put(member, new MemberAssignmentImpl(share));
      }
      return new GroupAssignment(shares);
    }
  }

  static class Client implements AuthorizableRequestContext {
    @Override public String listenerName() { return "l"; }
    @Override public org.apache.kafka.common.security.auth.SecurityProtocol securityProtocol() { return org.apache.kafka.common.security.auth.SecurityProtocol.PLAINTEXT; }
    @Override public org.apache.kafka.common.security.auth.KafkaPrincipal principal() { return org.apache.kafka.common.security.auth.KafkaPrincipal.ANONYMOUS; }
    @Override public InetAddress clientAddress() { return InetAddress.getLoopbackAddress(); }
    @Override public int requestType() { return ApiKeys.SHARE_GROUP_HEARTBEAT.id; }
    @Override public int requestVersion() { return 1; }
    @Override public String clientId() { return "client"; }
    @Override public int correlationId() { return 0; }
  }

  static CoordinatorMetadataImage view() { return new KRaftCoordinatorMetadataImage(image); }

  static void open(JsonNode in) {
    var clock = new Clock();
    var registry = new SnapshotRegistry(new org.apache.kafka.common.utils.internals.LogContext());
    timers = new Timers();
    Map<String, Object> properties = new HashMap<>();
    in.get("config").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
    var config = new GroupCoordinatorConfig(new AbstractConfig(GroupCoordinatorConfig.CONFIG_DEF, properties, false));
    manager = new GroupMetadataManager.Builder().withSnapshotRegistry(registry).withTime(clock).withTimer(timers)
        .withExecutor(new NoTasks()).withConfig(config)
        .withGroupConfigManager(new GroupConfigManager(config, ShareGroupConfig.fromProps(properties)))
        .withMetadataImage(view()).withShareGroupAssignor(new Everything())
        .withGroupCoordinatorMetricsShard(new GroupCoordinatorMetricsShard(registry, Map.of(), new TopicPartition("__consumer_offsets", 0)))
        .build();
  }

  static MetadataDelta change(JsonNode topics) {
    var delta = new MetadataDelta.Builder().setImage(image).build();
    if (image.cluster().isEmpty())
      for (int id = 0; id < RACKS; id++)
        delta.replay(new RegisterBrokerRecord().setBrokerId(id).setRack("rack" + id).setBrokerEpoch(1).setFenced(false));
    for (var before : image.topics().topicsByName().entrySet()) {
      JsonNode after = topics.get(before.getKey());
      if (after == null || !uuid(after.get(0).asText()).equals(before.getValue().id()))
        delta.replay(new RemoveTopicRecord().setTopicId(before.getValue().id()));
    }
    topics.fields().forEachRemaining(topic -> {
      Uuid id = uuid(topic.getValue().get(0).asText());
      TopicImage before = image.topics().getTopic(id);
      if (before == null) delta.replay(new TopicRecord().setName(topic.getKey()).setTopicId(id));
      for (int number = before == null ? 0 : before.partitions().size(); number < topic.getValue().get(1).asInt(); number++) {
        var replicas = List.of(number % RACKS, (number + 1) % RACKS);
        delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(number).setReplicas(replicas).setIsr(replicas)
            .setLeader(replicas.get(0)).setLeaderEpoch(0).setPartitionEpoch(0)
            .setDirectories(List.of(org.apache.kafka.common.DirectoryId.UNASSIGNED, org.apache.kafka.common.DirectoryId.UNASSIGNED)));
      }
    });
    image = delta.apply(new MetadataProvenance(image.offset() + 1, 0, now, true));
    return delta;
  }

  static void replay(CoordinatorRecord record) {
    ApiMessage key = record.key();
    ApiMessage value = record.value() == null ? null : record.value().message();
    if (key instanceof ShareGroupMemberMetadataKey k) manager.replay(k, (ShareGroupMemberMetadataValue) value);
    else if (key instanceof ShareGroupMetadataKey k) manager.replay(k, (ShareGroupMetadataValue) value);
    else if (key instanceof ShareGroupTargetAssignmentMetadataKey k) manager.replay(k, (ShareGroupTargetAssignmentMetadataValue) value);
    else if (key instanceof ShareGroupTargetAssignmentMemberKey k) manager.replay(k, (ShareGroupTargetAssignmentMemberValue) value);
    else if (key instanceof ShareGroupCurrentMemberAssignmentKey k) manager.replay(k, (ShareGroupCurrentMemberAssignmentValue) value);
    else if (key instanceof ShareGroupStatePartitionMetadataKey k) manager.replay(k, (ShareGroupStatePartitionMetadataValue) value);
    else throw new IllegalArgumentException(key.toString());
  }

  static void settle(ObjectNode out, List<CoordinatorRecord> records) {
    ArrayNode array = out.putArray("records");
    for (CoordinatorRecord record : records) {
      ArrayNode pair = array.addArray();
      pair.add(HexFormat.of().formatHex(SERDE.serializeKey(record)));
      byte[] value = SERDE.serializeValue(record);
      if (value == null) pair.addNull(); else pair.add(HexFormat.of().formatHex(value));
    }
    records.forEach(ShareGroupJudge::replay);
  }

  static void states(ObjectNode out, InitializeShareGroupStateParameters parameters) {
    ArrayNode array = out.putArray("states");
    for (var topic : parameters.groupTopicPartitionData().topicsData())
      for (var part : topic.partitions())
        array.addArray().add(hex(topic.topicId())).add(part.partition()).add(part.stateEpoch()).add(part.startOffset());
  }

  static void deletions(ObjectNode out, List<DeleteShareGroupStateRequestData.DeleteStateData> topics) {
    ArrayNode array = out.putArray("states");
    for (var topic : topics)
      for (var part : topic.partitions()) array.addArray().add(hex(topic.topicId())).add(part.partition());
  }

  static Map<Uuid, Set<Integer>> partitions(JsonNode in) {
    Map<Uuid, Set<Integer>> topics = new HashMap<>();
    in.fields().forEachRemaining(topic -> {
      Set<Integer> numbers = topics.computeIfAbsent(uuid(topic.getKey()), __ -> new HashSet<>());
      topic.getValue().forEach(number -> numbers.add(number.asInt()));
    });
    return topics;
  }

  static void heartbeat(JsonNode in, ObjectNode out) {
    var request = new ShareGroupHeartbeatRequestData().setGroupId("g").setMemberId(in.get("member").asText())
        .setMemberEpoch(in.get("epoch").asInt()).setRackId(in.hasNonNull("rack") ? in.get("rack").asText() : null)
        .setSubscribedTopicNames(in.hasNonNull("topics") ? names(in.get("topics")) : null);
    var result = manager.shareGroupHeartbeat(new Client(), request);
    var response = result.response().getKey();
    out.put("member", response.memberId()).put("epoch", response.memberEpoch());
    if (response.assignment() != null) {
      ObjectNode assignment = out.putObject("assignment");
      response.assignment().topicPartitions().forEach(topic -> {
        ArrayNode numbers = assignment.putArray(hex(topic.topicId()));
        topic.partitions().stream().sorted().forEach(numbers::add);
      });
    }
    result.response().getValue().ifPresent(parameters -> states(out, parameters));
    settle(out, result.records());
  }

  static void expire(long end, ArrayNode out) {
    while (true) {
      var due = timers.running.values().stream().filter(timer -> timer.deadline() <= end)
          .min(Comparator.comparingLong(Timeout::deadline).thenComparing(Timeout::key));
      if (due.isEmpty()) break;
      timers.running.remove(due.get().key());
      now = Math.max(now, due.get().deadline());
      settle(out.addObject().put("key", due.get().key()).put("at", now), due.get().operation().generateRecords().records());
    }
    now = end;
  }

  static void alter(JsonNode in, ObjectNode out) {
    var topics = new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopicCollection();
    in.get("offsets").fields().forEachRemaining(topic -> {
      var asked = new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopic().setTopicName(topic.getKey());
      topic.getValue().fields().forEachRemaining(part -> asked.partitions().add(
          new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestPartition()
              .setPartitionIndex(Integer.parseInt(part.getKey())).setStartOffset(part.getValue().asLong())));
      topics.add(asked);
    });
    var result = manager.alterShareGroupOffsets("g", topics);
    states(out, result.response().getValue());
    settle(out, result.records());
  }

  static void deleteOffsets(JsonNode in, ObjectNode out) {
    var group = manager.shareGroup("g");
    group.validateDeleteGroup();
    var request = new DeleteShareGroupOffsetsRequestData().setGroupId("g");
    in.get("topics").forEach(name -> request.topics().add(
        new DeleteShareGroupOffsetsRequestData.DeleteShareGroupOffsetsRequestTopic().setTopicName(name.asText())));
    List<CoordinatorRecord> records = new ArrayList<>();
    List<DeleteShareGroupOffsetsResponseData.DeleteShareGroupOffsetsResponseTopic> errors = new ArrayList<>();
    deletions(out, manager.sharePartitionsEligibleForOffsetDeletion("g", request, errors, records));
    ObjectNode refused = out.putObject("errors");
    errors.forEach(topic -> refused.put(topic.topicName(), Errors.forCode(topic.errorCode()).name() + " " + topic.errorMessage()));
    settle(out, records);
  }

  static ObjectNode run(JsonNode in) throws Exception {
    ObjectNode out = JSON.createObjectNode();
    switch (in.get("op").asText()) {
      case "new" -> {
        now = 1000;
        image = MetadataImage.EMPTY;
        change(in.get("topics"));
        open(in);
      }
      case "load" -> {
        open(in);
        for (JsonNode pair : in.get("log"))
          replay(SERDE.deserialize(java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(pair.get(0).asText())),
              pair.get(1).isNull() ? null : java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(pair.get(1).asText()))));
        manager.onLoaded();
      }
      case "topics" -> {
        var delta = change(in.get("topics"));
        var changes = new KRaftCoordinatorMetadataDelta(delta);
        manager.onMetadataUpdate(changes, view());
        var deleted = delta.topicsDelta() == null ? Set.<Uuid>of() : delta.topicsDelta().deletedTopicIds();
        settle(out, manager.maybeCleanupShareGroupState(deleted).records());
      }
      case "sleep" -> expire(now + in.get("ms").asLong(), out.putArray("timers"));
      case "heartbeat" -> heartbeat(in, out);
      case "initialized" -> settle(out, manager.initializeShareGroupState("g", partitions(in.get("partitions"))).records());
      case "uninitialized" -> settle(out, manager.uninitializeShareGroupState("g", partitions(in.get("partitions"))).records());
      case "alter" -> alter(in, out);
      case "delete_offsets" -> deleteOffsets(in, out);
      case "offsets_deleted" -> {
        Map<Uuid, String> topics = new HashMap<>();
        in.get("topics").forEach(topic -> topics.put(uuid(topic.asText()), "name"));
        List<CoordinatorRecord> records = new ArrayList<>();
        manager.completeDeleteShareGroupOffsets("g", topics, records);
        settle(out, records);
      }
      case "begin_deletion" -> {
        manager.shareGroup("g").validateDeleteGroup();
        List<CoordinatorRecord> records = new ArrayList<>();
        ArrayNode array = out.putArray("states");
        manager.shareGroupBuildPartitionDeleteRequest("g", records).ifPresent(parameters -> {
          for (var topic : parameters.groupTopicPartitionData().topicsData())
            for (var part : topic.partitions()) array.addArray().add(hex(topic.topicId())).add(part.partition());
        });
        settle(out, records);
      }
      case "delete_group" -> {
        manager.shareGroup("g").validateDeleteGroup();
        List<CoordinatorRecord> records = new ArrayList<>();
        manager.maybeDeleteGroup("g", records);
        settle(out, records);
      }
      case "describe" -> {
        var group = manager.shareGroupDescribe(List.of("g"), Long.MAX_VALUE).get(0);
        out.put("error", Errors.forCode(group.errorCode()).name()).put("message", group.errorMessage())
            .put("state", group.groupState()).put("epoch", group.groupEpoch()).put("assignment_epoch", group.assignmentEpoch());
        ObjectNode members = out.putObject("members");
        group.members().forEach(member -> members.put(member.memberId(), member.memberEpoch()));
      }
      case "assign" -> assign(in, out);
      default -> throw new IllegalArgumentException(in.toString());
    }
    return out;
  }

  /** The assignor "simple" alone. */
  static void assign(JsonNode in, ObjectNode out) {
    Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
    Set<Set<Uuid>> subscriptions = new HashSet<>();
    in.get("members").fields().forEachRemaining(member -> {
      Set<Uuid> subscribed = new HashSet<>();
      member.getValue().get("topics").forEach(topic -> subscribed.add(uuid(topic.asText())));
      subscriptions.add(subscribed);
      members.put(member.getKey(), new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), subscribed,
          new org.apache.kafka.coordinator.group.modern.Assignment(partitions(member.getValue().get("assigned")))));
    });
    Map<Uuid, Set<Integer>> assignable = partitions(in.get("assignable"));
    var describer = new SubscribedTopicDescriber() {
      @Override public int numPartitions(Uuid topic) { return Collections.max(assignable.get(topic)) + 1; }
      @Override public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
    };
    var type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
    var assignment = new org.apache.kafka.coordinator.group.assignor.SimpleAssignor().assign(
        new org.apache.kafka.coordinator.group.modern.GroupSpecImpl(members, type, Map.of(), Optional.of(assignable)), describer);
    ObjectNode shares = out.putObject("shares");
    assignment.members().forEach((member, share) -> {
      ObjectNode topics = shares.putObject(member);
      share.partitions().forEach((topic, numbers) -> {
        ArrayNode array = topics.putArray(hex(topic));
        numbers.stream().sorted().forEach(array::add);
      });
    });
  }

  static List<String> names(JsonNode in) {
    List<String> names = new ArrayList<>();
    in.forEach(name -> names.add(name.asText()));
    return names;
  }

  static Uuid uuid(String hex) {
    var buffer = java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    return new Uuid(buffer.getLong(), buffer.getLong());
  }

  static String hex(Uuid id) {
    return HexFormat.of().formatHex(
        java.nio.ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array());
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream output = System.out;
    System.setOut(System.err);
    var input = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = input.readLine()) != null;) {
      ObjectNode out;
      try {
        out = run(JSON.readTree(line));
      } catch (ApiException refused) {
        out = JSON.createObjectNode().put("error", Errors.forException(refused).name()).put("message", refused.getMessage());
      } catch (RuntimeException fault) {
        // A broker answers UNKNOWN_SERVER_ERROR.
        out = JSON.createObjectNode().put("fault", fault.toString());
      }
      output.println(JSON.writeValueAsString(out));
      output.flush();
    }
  }
}
