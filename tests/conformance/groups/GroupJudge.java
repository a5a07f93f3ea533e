package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.image.*;

/** Apache Kafka's GroupMetadataManager in virtual time: a line of JSON in, a line of JSON out. */
public class GroupJudge {
  static final ObjectMapper JSON = new ObjectMapper();
  static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
  static GroupMetadataManagerTestContext context;
  static long version;
  static long seed;
  static Map<String, Object[]> topics = new TreeMap<>();
  /** Requests that wait for an answer, by the history's token. */
  static Map<Integer, java.util.concurrent.CompletableFuture<?>> waiting = new TreeMap<>();

  static CoordinatorMetadataImage image() {
    var builder = new MetadataImageBuilder();
    topics.forEach((name, spec) -> builder.addTopic((Uuid) spec[0], name, (Integer) spec[1]));
    return builder.addRacks().buildCoordinatorMetadataImage(version);
  }

  static void records(ObjectNode out, List<CoordinatorRecord> records) {
    ArrayNode array = out.putArray("records");
    for (CoordinatorRecord record : records) {
      ArrayNode pair = array.addArray();
      pair.add(HexFormat.of().formatHex(SERDE.serializeKey(record)));
      byte[] value = SERDE.serializeValue(record);
      if (value == null) pair.addNull(); else pair.add(HexFormat.of().formatHex(value));
    }
  }

  /** Member ids that follow from a history's seed, for UUID draws them from here. */
  public static class Seeded extends java.security.SecureRandomSpi {
    static Random random = new Random(0);
    @Override protected void engineSetSeed(byte[] seed) { }
    @Override protected void engineNextBytes(byte[] bytes) { random.nextBytes(bytes); }
    @Override protected byte[] engineGenerateSeed(int count) { return new byte[count]; }
  }

  static void open(JsonNode in, org.apache.kafka.common.utils.MockTime time) throws Exception {
    waiting.clear();
    var builder = new GroupMetadataManagerTestContext.Builder().withMetadataImage(image());
    if (time != null) {
      builder.withTime(time);
      // The builder has made its timer with the time of before.
      var timer = GroupMetadataManagerTestContext.Builder.class.getDeclaredField("timer"); timer.setAccessible(true);
      timer.set(builder, new MockCoordinatorTimer<CoordinatorRecord>(time));
    }
    context = builder
        .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_ASSIGNMENT_INTERVAL_MS_CONFIG, in.get("interval").asInt())
        .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_MIN_ASSIGNMENT_INTERVAL_MS_CONFIG, 0)
        .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_MAX_SIZE_CONFIG, in.get("max_size").asInt())
        .withConfig(GroupCoordinatorConfig.GROUP_MAX_SIZE_CONFIG, in.get("classic_max_size").asInt())
        .withConfig(GroupCoordinatorConfig.GROUP_INITIAL_REBALANCE_DELAY_MS_CONFIG, 0)
        .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_MIGRATION_POLICY_CONFIG, in.get("policy").asText())
        .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_ASSIGNORS_CONFIG, List.of(
            new org.apache.kafka.coordinator.group.assignor.RangeAssignor(), new org.apache.kafka.coordinator.group.assignor.UniformAssignor()))
        .build();
  }

  static void settle(CoordinatorResult<?, CoordinatorRecord> result, boolean replayed) {
    if (!replayed && result.replayRecords()) result.records().forEach(context::replay);
    if (result.appendFuture() != null) result.appendFuture().complete(null);
  }

  /** Expire what is due in the order of the deadlines, each with the time and the records of those before. */
  @SuppressWarnings("unchecked")
  static void sleep(long duration, ArrayNode out) throws Exception {
    var queueField = MockCoordinatorTimer.class.getDeclaredField("timeoutQueue"); queueField.setAccessible(true);
    var mapField = MockCoordinatorTimer.class.getDeclaredField("timeoutMap"); mapField.setAccessible(true);
    var queue = (PriorityQueue<MockCoordinatorTimer.ScheduledTimeout<CoordinatorRecord>>) queueField.get(context.timer);
    var map = (Map<String, ?>) mapField.get(context.timer);
    long end = context.time.milliseconds() + duration;
    while (!queue.isEmpty() && queue.peek().deadlineMs() <= end) {
      var timeout = queue.poll();
      map.remove(timeout.key(), timeout);
      context.time.sleep(Math.max(0, timeout.deadlineMs() - context.time.milliseconds()));
      var result = timeout.operation().generateRecords();
      settle(result, false);
      ObjectNode timer = out.addObject();
      timer.put("key", timeout.key()).put("at", context.time.milliseconds());
      records(timer, result.records());
      released(timer);
    }
    context.time.sleep(end - context.time.milliseconds());
  }

  static void released(ObjectNode out) throws Exception {
    ArrayNode array = out.putArray("released");
    for (var entries = waiting.entrySet().iterator(); entries.hasNext();) {
      var entry = entries.next();
      if (!entry.getValue().isDone()) continue;
      ObjectNode reply = array.addObject().put("token", entry.getKey());
      Object answer = entry.getValue().get();
      // Only now: the map may reuse the entry for its successor.
      entries.remove();
      if (answer instanceof JoinGroupResponseData join)
        reply.put("error", Errors.forCode(join.errorCode()).name()).put("member", join.memberId())
            .put("generation", join.generationId()).put("protocol", join.protocolName()).put("leader", join.leader());
      else if (answer instanceof SyncGroupResponseData sync)
        reply.put("error", Errors.forCode(sync.errorCode()).name()).put("protocol", sync.protocolName())
            .put("assignment", HexFormat.of().formatHex(sync.assignment()));
    }
  }

  static Set<String> classicMembers() {
    Set<String> names = new TreeSet<>();
    try {
      context.groupMetadataManager.classicGroup("g", Long.MAX_VALUE).allMembers().forEach(member -> names.add(member.memberId()));
    } catch (ApiException missing) { }
    return names;
  }

  static String text(JsonNode in, String name) {
    return in.hasNonNull(name) ? in.get(name).asText() : null;
  }

  static byte[] hex(JsonNode in) {
    return HexFormat.of().parseHex(in.asText());
  }

  static ObjectNode run(JsonNode in) throws Exception {
    ObjectNode out = JSON.createObjectNode();
    switch (in.get("op").asText()) {
      case "new" -> {
        topics.clear(); version = 1;
        seed = in.get("seed").asLong() << 16;
        in.get("topics").fields().forEachRemaining(e -> topics.put(e.getKey(), new Object[] {uuid(e.getValue().get(0).asText()), e.getValue().get(1).asInt()}));
        open(in, null);
      }
      case "load" -> {
        open(in, context.time);
        for (JsonNode pair : in.get("log"))
          context.replay(SERDE.deserialize(java.nio.ByteBuffer.wrap(hex(pair.get(0))), pair.get(1).isNull() ? null : java.nio.ByteBuffer.wrap(hex(pair.get(1)))));
        context.onLoaded();
      }
      case "join" -> {
        var protocols = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        in.get("protocols").forEach(p -> protocols.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName(p.get(0).asText()).setMetadata(hex(p.get(1)))));
        var request = new JoinGroupRequestData().setGroupId("g").setMemberId(in.get("member").asText()).setGroupInstanceId(text(in, "instance"))
            .setSessionTimeoutMs(in.get("session").asInt()).setRebalanceTimeoutMs(in.get("timeout").asInt())
            .setProtocolType(in.get("type").asText()).setProtocols(protocols);
        var before = classicMembers();
        Seeded.random = new Random(seed++);
        var result = context.sendClassicGroupJoin(request, in.get("known").asBoolean(), true);
        waiting.put(in.get("token").asInt(), result.joinFuture);
        if (result.appendFuture != null) result.appendFuture.complete(null);
        var created = classicMembers();
        created.removeAll(before);
        out.put("created", String.join(",", created));
        records(out, result.records);
      }
      case "sync" -> {
        var request = new SyncGroupRequestData().setGroupId("g").setMemberId(in.get("member").asText()).setGroupInstanceId(text(in, "instance"))
            .setGenerationId(in.get("generation").asInt()).setProtocolType(text(in, "type")).setProtocolName(text(in, "protocol"));
        in.get("assignments").fields().forEachRemaining(e -> request.assignments().add(
            new SyncGroupRequestData.SyncGroupRequestAssignment().setMemberId(e.getKey()).setAssignment(hex(e.getValue()))));
        var result = context.sendClassicGroupSync(request);
        waiting.put(in.get("token").asInt(), result.syncFuture);
        if (result.appendFuture != null) result.appendFuture.complete(null);
        records(out, result.records);
      }
      case "classic_heartbeat" -> {
        var request = new HeartbeatRequestData().setGroupId("g").setMemberId(in.get("member").asText()).setGroupInstanceId(text(in, "instance"))
            .setGenerationId(in.get("generation").asInt());
        var result = context.sendClassicGroupHeartbeat(request);
        settle(result, false);
        out.put("code", Errors.forCode(result.response().errorCode()).name());
      }
      case "leave" -> {
        var request = new LeaveGroupRequestData().setGroupId("g");
        in.get("members").forEach(m -> request.members().add(new LeaveGroupRequestData.MemberIdentity()
            .setMemberId(m.get(0).asText()).setGroupInstanceId(m.get(1).isNull() ? null : m.get(1).asText())));
        var result = context.sendClassicGroupLeave(request);
        settle(result, false);
        ArrayNode codes = out.putArray("codes");
        result.response().members().forEach(m -> codes.add(Errors.forCode(m.errorCode()).name()));
        records(out, result.records());
      }
      case "topics" -> {
        topics.clear(); version++;
        in.get("topics").fields().forEachRemaining(e -> topics.put(e.getKey(), new Object[] {uuid(e.getValue().get(0).asText()), e.getValue().get(1).asInt()}));
        var image = image();
        context.groupMetadataManager.onMetadataUpdate(CoordinatorMetadataDelta.EMPTY, image);
        var cache = GroupMetadataManager.class.getDeclaredField("topicHashCache"); cache.setAccessible(true); ((Map<?, ?>) cache.get(context.groupMetadataManager)).clear();
        if (in.get("new").asBoolean()) { var last = GroupMetadataManager.class.getDeclaredField("lastMetadataImageWithNewTopics"); last.setAccessible(true); last.setLong(context.groupMetadataManager, version); }
        refresh();
      }
      case "sleep" -> sleep(in.get("ms").asLong(), out.putArray("timers"));
      case "commit" -> {
        var validator = context.groupMetadataManager.consumerGroup("g").validateOffsetCommit(
            in.get("member").asText(), text(in, "instance"), in.get("epoch").asInt(), in.get("transactional").asBoolean(), in.get("version").asInt());
        ObjectNode codes = out.putObject("codes");
        topics.forEach((name, spec) -> {
          ArrayNode array = codes.putArray(name);
          for (int partition = 0; partition < (Integer) spec[1]; partition++) {
            try {
              validator.validate(name, (Uuid) spec[0], partition);
              array.add("NONE");
            } catch (ApiException refused) {
              array.add(Errors.forException(refused).name());
            }
          }
        });
      }
      case "fetch" -> context.groupMetadataManager.consumerGroup("g").validateOffsetFetch(
          text(in, "member"), in.get("epoch").asInt(), Long.MAX_VALUE);
      case "assign" -> {
        Map<String, org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        in.get("members").fields().forEachRemaining(member -> {
          Set<Uuid> subscribed = new HashSet<>();
          member.getValue().get("topics").forEach(topic -> subscribed.add(uuid(topic.asText())));
          subscriptions.add(subscribed);
          Map<Uuid, Set<Integer>> assigned = new HashMap<>();
          member.getValue().get("assigned").fields().forEachRemaining(topic -> {
            Set<Integer> numbers = new HashSet<>();
            topic.getValue().forEach(number -> {
              numbers.add(number.asInt());
              inverted.computeIfAbsent(uuid(topic.getKey()), __ -> new HashMap<>()).put(number.asInt(), member.getKey());
            });
            assigned.put(uuid(topic.getKey()), numbers);
          });
          members.put(member.getKey(), new org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl(
              Optional.of("rack" + member.getKey().hashCode() % 4), Optional.empty(), subscribed, new org.apache.kafka.coordinator.group.modern.Assignment(assigned)));
        });
        JsonNode counts = in.get("counts");
        var describer = new org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber() {
          @Override public int numPartitions(Uuid topic) { return counts.get(HexFormat.of().formatHex(bytes(topic))).asInt(); }
          @Override public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of("rack" + partition % 4); }
        };
        var type = subscriptions.size() > 1 ? org.apache.kafka.coordinator.group.api.assignor.SubscriptionType.HETEROGENEOUS
            : org.apache.kafka.coordinator.group.api.assignor.SubscriptionType.HOMOGENEOUS;
        var assignment = new org.apache.kafka.coordinator.group.assignor.UniformAssignor().assign(
            new org.apache.kafka.coordinator.group.modern.GroupSpecImpl(members, type, inverted), describer);
        ObjectNode shares = out.putObject("shares");
        assignment.members().forEach((member, share) -> {
          ObjectNode topics = shares.putObject(member);
          share.partitions().forEach((topic, numbers) -> {
            ArrayNode array = topics.putArray(HexFormat.of().formatHex(bytes(topic)));
            numbers.forEach(array::add);
          });
        });
      }
      case "tasks" -> {
        List<CoordinatorRecord> all = new ArrayList<>();
        for (var result : context.processTasks()) all.addAll(result.result().records());
        records(out, all);
      }
      case "heartbeat" -> {
        var request = new ConsumerGroupHeartbeatRequestData().setGroupId(in.get("group").asText())
            .setMemberId(in.get("member").asText()).setMemberEpoch(in.get("epoch").asInt());
        if (in.hasNonNull("instance")) request.setInstanceId(in.get("instance").asText());
        if (in.hasNonNull("rack")) request.setRackId(in.get("rack").asText());
        if (in.hasNonNull("timeout")) request.setRebalanceTimeoutMs(in.get("timeout").asInt());
        if (in.hasNonNull("assignor")) request.setServerAssignor(in.get("assignor").asText());
        if (in.hasNonNull("regex")) request.setSubscribedTopicRegex(in.get("regex").asText());
        if (in.hasNonNull("topics")) {
          List<String> names = new ArrayList<>();
          in.get("topics").forEach(n -> names.add(n.asText()));
          request.setSubscribedTopicNames(names);
        }
        if (in.hasNonNull("owned")) {
          List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = new ArrayList<>();
          in.get("owned").fields().forEachRemaining(e -> {
            List<Integer> numbers = new ArrayList<>();
            e.getValue().forEach(n -> numbers.add(n.asInt()));
            owned.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions().setTopicId(uuid(e.getKey())).setPartitions(numbers));
          });
          request.setTopicPartitions(owned);
        }
        var result = context.consumerGroupHeartbeat(request);
        var response = result.response();
        out.put("member", response.memberId()).put("epoch", response.memberEpoch());
        if (response.assignment() != null) {
          ObjectNode assignment = out.putObject("assignment");
          response.assignment().topicPartitions().forEach(tp -> {
            ArrayNode numbers = assignment.putArray(HexFormat.of().formatHex(bytes(tp.topicId())));
            tp.partitions().stream().sorted().forEach(numbers::add);
          });
        }
        records(out, result.records());
      }
      default -> throw new IllegalArgumentException(in.toString());
    }
    released(out);
    return out;
  }

  static void refresh() throws Exception {
    // The shard asks each group to compare its metadata when topics changed; the empty delta of above names none.
    for (String group : List.of("g"))
      try { context.groupMetadataManager.consumerGroup(group).requestMetadataRefresh(); } catch (ApiException missing) { }
  }

  static Uuid uuid(String hex) {
    var buffer = java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    return new Uuid(buffer.getLong(), buffer.getLong());
  }

  static byte[] bytes(Uuid id) {
    return java.nio.ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
  }

  public static void main(String[] arguments) throws Exception {
    var provider = new java.security.Provider("judge", "1", "member ids by seed") { };
    provider.put("SecureRandom.Seeded", Seeded.class.getName());
    java.security.Security.insertProviderAt(provider, 1);
    PrintStream output = System.out;
    System.setOut(System.err);
    var input = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = input.readLine()) != null;) {
      ObjectNode out;
      try {
        out = run(JSON.readTree(line));
      } catch (ApiException refused) {
        out = JSON.createObjectNode().put("error", Errors.forException(refused).name()).put("message", refused.getMessage());
        released(out);
      } catch (RuntimeException fault) {
        // A broker answers UNKNOWN_SERVER_ERROR.
        out = JSON.createObjectNode().put("fault", fault.toString());
        released(out);
      }
      output.println(JSON.writeValueAsString(out));
      output.flush();
    }
  }
}
