package kafka.server.share;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.dlq.*;
import org.apache.kafka.server.share.fetch.*;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.server.util.timer.*;

/** Apache Kafka's SharePartition in virtual time: a line of JSON in, a line of JSON out. */
public class ShareJudge {
  static final ObjectMapper JSON = new ObjectMapper();
  static final TopicIdPartition PARTITION = new TopicIdPartition(new Uuid(1, 2), 0, "t");
  static long nowMs;
  static SharePartition partition;
  static ArrayNode issued;
  static ArrayNode letters;
  static long notified;
  static int lockMs, deliveries, inFlight;
  static boolean renews, deadLetters;
  /** Writes that wait for their end, by their number in the history. */
  static final Map<Integer, CompletableFuture<WriteShareGroupStateResult>> writes = new TreeMap<>();
  static final Map<Integer, CompletableFuture<Void>> copies = new TreeMap<>();
  static final Map<Integer, CompletableFuture<Void>> waiting = new TreeMap<>();
  static int number;
  static JsonNode loaded;

  static final Time TIME = new Time() {
    public long milliseconds() { return nowMs; }
    public long hiResClockMs() { return nowMs; }
    public long nanoseconds() { return nowMs * 1_000_000; }
    public void sleep(long ms) { }
  };

  static class JudgeTimer implements org.apache.kafka.server.util.timer.Timer {
    record Due(long at, long order, TimerTaskEntry entry) { }
    final PriorityQueue<Due> queue = new PriorityQueue<>(Comparator.comparingLong(Due::at).thenComparingLong(Due::order));
    long order;
    public void add(org.apache.kafka.server.util.timer.TimerTask task) {
      var entry = new TimerTaskEntry(task, task.delayMs + nowMs);
      if (task.delayMs <= 0) task.run(); else queue.add(new Due(entry.expirationMs, order++, entry));
    }
    public boolean advanceClock(long end) {
      while (!queue.isEmpty() && queue.peek().at <= end) {
        Due due = queue.poll();
        nowMs = Math.max(nowMs, due.at);
        if (!due.entry.cancelled()) due.entry.timerTask.run();
      }
      nowMs = end;
      return true;
    }
    public int size() { return queue.size(); }
    public void close() { }
  }

  static JudgeTimer timer;

  static class JudgePersister extends NoOpStatePersister {
    public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters request) {
      List<PersisterStateBatch> batches = new ArrayList<>();
      loaded.get("batches").forEach(b -> batches.add(new PersisterStateBatch(b.get(0).asLong(), b.get(1).asLong(), (byte) b.get(2).asInt(), (short) b.get(3).asInt())));
      var data = PartitionFactory.newPartitionAllData(0, loaded.get("epoch").asInt(), loaded.get("start").asLong(), (short) 0, null, batches);
      return CompletableFuture.completedFuture(new ReadShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(PARTITION.topicId(), List.of(data)))).build());
    }
    public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters request) {
      var data = request.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
      var future = new CompletableFuture<WriteShareGroupStateResult>();
      writes.put(number, future);
      ObjectNode out = issued.addObject().put("id", number++).put("epoch", data.stateEpoch()).put("start", data.startOffset()).put("complete", data.deliveryCompleteCount());
      ArrayNode batches = out.putArray("batches");
      data.stateBatches().forEach(b -> batches.addArray().add(b.firstOffset()).add(b.lastOffset()).add(b.deliveryState()).add(b.deliveryCount()));
      return future;
    }
  }

  static class JudgeLetters implements ShareGroupDLQManager {
    public CompletableFuture<Void> enqueue(ShareGroupDLQRecordParameter p) {
      var future = new CompletableFuture<Void>();
      copies.put(number, future);
      letters.addArray().add(number++).add(p.firstOffset()).add(p.lastOffset()).add(p.deliveryCount().get()).add(p.cause().get() == CLIENT_REJECT ? 0 : 1);
      return future;
    }
    public void stop() { }
  }

  static class Config extends ShareGroupConfigProvider {
    Config() { super(null); }
    @Override public int recordLockDurationMsOrDefault(String group, int value) { return lockMs; }
    @Override public int deliveryCountLimitOrDefault(String group, int value) { return deliveries; }
    @Override public int partitionMaxRecordLocksOrDefault(String group, int value) { return inFlight; }
    @Override public boolean isRenewAcknowledgeEnabled(String group) { return renews; }
    @Override public Optional<String> errorsDLQTopicName(String group) { return deadLetters ? Optional.of("dlq.t") : Optional.empty(); }
  }

  static void settings(JsonNode in) {
    JsonNode s = in.get("settings");
    lockMs = s.get(0).asInt(); deliveries = s.get(1).asInt(); inFlight = s.get(2).asInt(); renews = s.get(3).asBoolean(); deadLetters = s.get(4).asBoolean();
  }

  static MemoryRecords records(JsonNode batches) {
    ByteBuffer buffer = ByteBuffer.allocate(256 * batches.size());
    for (JsonNode b : batches) {
      long base = b.get(0).asLong(), last = b.get(1).asLong(), producer = b.get(2).asLong();
      String kind = b.get(3).asText();
      MemoryRecords one;
      if (kind.equals("abort") || kind.equals("commit")) {
        one = MemoryRecords.withEndTransactionMarker(base, 0L, 0, producer, (short) 0, new EndTransactionMarker(kind.equals("abort") ? ControlRecordType.ABORT : ControlRecordType.COMMIT, 0));
      } else {
        boolean transactional = kind.equals("transactional");
        var builder = MemoryRecords.builder(ByteBuffer.allocate(256), RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.CREATE_TIME, base, 0L, producer, (short) (producer < 0 ? -1 : 0), producer < 0 ? -1 : 0, transactional, 0);
        if (last > base) builder.appendWithOffset(base, 0L, null, new byte[0]);
        builder.appendWithOffset(last, 0L, null, new byte[0]);
        one = builder.build();
      }
      buffer.put(one.buffer().duplicate());
    }
    buffer.flip();
    return MemoryRecords.readableRecords(buffer);
  }

  static void acquire(JsonNode in, ObjectNode out) throws Exception {
    List<FetchResponseData.AbortedTransaction> aborted = new ArrayList<>();
    in.get("aborted").forEach(a -> aborted.add(new FetchResponseData.AbortedTransaction().setProducerId(a.get(0).asLong()).setFirstOffset(a.get(1).asLong())));
    boolean committed = in.get("committed").asBoolean();
    var data = new FetchPartitionData(Errors.NONE, 1L << 40, 0L, records(in.get("log")), Optional.empty(), OptionalLong.empty(),
        committed ? Optional.of(aborted) : Optional.empty(), OptionalInt.empty(), false);
    var acquired = partition.acquire(in.get("member").asText(), in.get("limit").asBoolean() ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED,
        in.get("batch_size").asInt(), in.get("max").asInt(), in.get("offset").asLong(), data, committed ? FetchIsolation.TXN_COMMITTED : FetchIsolation.HIGH_WATERMARK);
    ArrayNode array = out.putArray("acquired");
    acquired.acquiredRecords().forEach(r -> array.addArray().add(r.firstOffset()).add(r.lastOffset()).add(r.deliveryCount()));
    out.put("count", acquired.count());
  }

  static Method ADVANCE;
  static Field START, GAPS;

  static SharePartition.GapWindow gaps() {
    var gaps = partition.persisterReadResultGapWindow();
    return gaps == null || gaps.endOffset() != partition.endOffset() ? null : gaps;
  }

  /** Even out the differences by intention, which histories.py lists; {@code gap} is where our gap range starts. */
  static void evenGaps(long gap) throws Exception {
    if (gaps() == null) return;
    if (gap < 0) GAPS.set(partition, null); else if (gap > gaps().gapStartOffset()) gaps().gapStartOffset(gap);
  }

  static void even(long before) throws Exception {
    long start = partition.startOffset();
    Long next = partition.cachedState().higherKey(start);
    if (partition.cachedState().floorEntry(start) == null && next != null && (gaps() == null || gaps().gapStartOffset() > start))
      START.setLong(partition, gaps() == null ? next : Math.min(next, gaps().gapStartOffset()));
    ADVANCE.invoke(partition);
    if (partition.startOffset() < before && partition.cachedState().isEmpty()) partition.updateCacheAndOffsets(before);
  }

  static void end(JsonNode ids, String error) {
    for (JsonNode id : ids) {
      var answer = PartitionFactory.newPartitionErrorData(0, Errors.valueOf(error).code(), "because");
      writes.remove(id.asInt()).complete(new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(PARTITION.topicId(), List.of(answer)))).build());
    }
  }

  static boolean canMove() {
    try { partition.canMoveStartOffset(); return true; } catch (NullPointerException fault) { return false; }
  }

  static void run(JsonNode in, ObjectNode out) throws Exception {
    switch (in.get("op").asText()) {
      case "new" -> {
        if (partition != null) { partition.markFenced(); partition.close(); }
        writes.clear(); copies.clear(); waiting.clear(); number = 0; nowMs = 1_000_000; notified = 0;
        settings(in); loaded = in; timer = new JudgeTimer();
        partition = new SharePartition("g", PARTITION, 0, 0, 0, 0, timer, TIME, new JudgePersister(), null, key -> notified++, new Config(), null, () -> true, new JudgeLetters());
        try { partition.maybeInitialize().get(); } catch (Exception failed) { out.put("refused", true); }
      }
      case "settings" -> settings(in);
      case "acquire" -> acquire(in, out);
      case "acknowledge" -> {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        in.get("batches").forEach(b -> {
          List<Byte> types = new ArrayList<>();
          b.get(2).forEach(type -> types.add((byte) type.asInt()));
          batches.add(new ShareAcknowledgementBatch(b.get(0).asLong(), b.get(1).asLong(), types));
        });
        waiting.put(in.get("token").asInt(), partition.acknowledge(in.get("member").asText(), batches));
      }
      case "release" -> waiting.put(in.get("token").asInt(), partition.releaseAcquiredRecords(in.get("member").asText()));
      case "sleep" -> timer.advanceClock(nowMs + in.get("ms").asLong());
      case "log_start" -> partition.updateCacheAndOffsets(in.get("offset").asLong());
      case "written" -> end(in.get("ids"), in.get("error").asText());
      case "copied" -> { for (JsonNode id : in.get("ids")) { var copy = copies.remove(id.asInt()); if (in.get("ok").asBoolean()) copy.complete(null); else copy.completeExceptionally(new RuntimeException("lost")); } }
      default -> throw new IllegalArgumentException(in.toString());
    }
  }

  static void state(ObjectNode out) {
    out.put("next", partition.nextFetchOffset()).put("may_acquire", partition.canAcquireRecords());
    out.put("start", partition.startOffset()).put("end", partition.endOffset()).put("complete", partition.deliveryCompleteCount());
    out.put("gap", gaps() == null ? -1 : gaps().gapStartOffset());
    out.put("can_move", canMove());
    ArrayNode batches = out.putArray("batches");
    for (InFlightBatch batch : partition.cachedState().values()) {
      ArrayNode one = batches.addArray().add(batch.firstOffset()).add(batch.lastOffset()).add(batch.offsetState() != null);
      ArrayNode runs = one.addArray();
      if (batch.offsetState() == null) {
        var lock = batch.batchAcquisitionLockTimeoutTask();
        run(runs, batch.firstOffset(), batch.lastOffset(), batch.batchState(), batch.batchDeliveryCount(), batch.batchMemberId(), batch.batchHasOngoingStateTransition(), lock);
      } else {
        for (var offset : batch.offsetState().entrySet()) {
          InFlightState s = offset.getValue();
          run(runs, offset.getKey(), offset.getKey(), s.state(), s.deliveryCount(), s.memberId(), s.hasOngoingStateTransition(), s.acquisitionLockTimeoutTask());
        }
      }
    }
  }

  static void run(ArrayNode runs, long first, long last, RecordState state, int count, String member, boolean changing, AcquisitionLockTimerTask lock) {
    long until = lock == null ? -1 : lock.expirationMs();
    if (runs.size() > 0) {
      ArrayNode previous = (ArrayNode) runs.get(runs.size() - 1);
      if (previous.get(2).asInt() == state.id() && previous.get(3).asInt() == count && previous.get(4).asText().equals(member) && previous.get(5).asBoolean() == changing && previous.get(6).asLong() == until) {
        previous.set(1, LongNode.valueOf(last));
        return;
      }
    }
    runs.addArray().add(first).add(last).add((int) state.id()).add(count).add(member).add(changing).add(until);
  }

  static void answers(ObjectNode out) {
    ArrayNode array = out.putArray("answers");
    for (var entries = waiting.entrySet().iterator(); entries.hasNext();) {
      var entry = entries.next();
      if (!entry.getValue().isDone()) continue;
      ArrayNode answer = array.addArray().add(entry.getKey());
      try { entry.getValue().get(); answer.add("NONE").addNull(); }
      catch (Exception failed) { answer.add(Errors.forException(failed.getCause()).name()).add(failed.getCause().getMessage()); }
      entries.remove();
    }
  }

  /** The processor time of a thousand records, of which the second half of the rounds counts: it runs compiled. */
  static void bench(int rounds, boolean mixed, ObjectNode out) throws Exception {
    ArrayNode log = JSON.createArrayNode();
    for (int i = 0; i < 10; i++) log.addArray().add(i * 100L).add(i * 100L + 99).add(-1).add("plain");
    MemoryRecords records = records(log);
    var data = new FetchPartitionData(Errors.NONE, 1L << 40, 0L, records, Optional.empty(), OptionalLong.empty(), Optional.empty(), OptionalInt.empty(), false);
    lockMs = 30_000; deliveries = 5; inFlight = 2000; renews = true; deadLetters = false;
    loaded = JSON.readTree("{\"epoch\": 0, \"start\": 0, \"batches\": []}");
    List<Byte> types = new ArrayList<>();
    for (int i = 0; i < (mixed ? 1000 : 1); i++) types.add((byte) (i % 2 == 0 ? 1 : 3));
    var metrics = new org.apache.kafka.server.share.metrics.SharePartitionMetrics("g", "t", 0);
    var bean = (com.sun.management.ThreadMXBean) java.lang.management.ManagementFactory.getThreadMXBean();
    long spent = 0;
    for (int round = 0; round < rounds; round++) {
      timer = new JudgeTimer();
      var one = new SharePartition("g", PARTITION, 0, 0, 0, 0, timer, TIME, new JudgePersister(), null, key -> notified++, new Config(), SharePartition.SharePartitionState.EMPTY, null, metrics, () -> false, new JudgeLetters());
      one.maybeInitialize().get();
      issued = JSON.createArrayNode(); writes.clear();
      long begin = bean.getCurrentThreadCpuTime();
      one.acquire("m", ShareAcquireMode.BATCH_OPTIMIZED, 1000, 1000, 0L, data, FetchIsolation.HIGH_WATERMARK);
      one.acknowledge("m", List.of(new ShareAcknowledgementBatch(0, 999, types)));
      var answer = PartitionFactory.newPartitionErrorData(0, (short) 0, null);
      writes.values().iterator().next().complete(new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(PARTITION.topicId(), List.of(answer)))).build());
      if (round >= rounds / 2) spent += bean.getCurrentThreadCpuTime() - begin;
      if (one.startOffset() != 1000) throw new IllegalStateException("the start is " + one.startOffset());
    }
    metrics.close();
    out.put("cpu_us", spent / 1000.0 / (rounds - rounds / 2));
  }

  public static void main(String[] args) throws Exception {
    ADVANCE = SharePartition.class.getDeclaredMethod("maybeUpdateCachedStateAndOffsets");
    ADVANCE.setAccessible(true);
    START = SharePartition.class.getDeclaredField("startOffset");
    START.setAccessible(true);
    GAPS = SharePartition.class.getDeclaredField("persisterReadResultGapWindow");
    GAPS.setAccessible(true);
    var in = new BufferedReader(new InputStreamReader(System.in));
    var result = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
    System.setOut(System.err);
    for (String line; (line = in.readLine()) != null;) {
      JsonNode request = JSON.readTree(line);
      ObjectNode out = JSON.createObjectNode();
      issued = JSON.createArrayNode(); letters = JSON.createArrayNode();
      if (request.get("op").asText().equals("bench")) {
        bench(request.get("rounds").asInt(), request.get("mixed").asBoolean(), out);
      } else {
        boolean couldMove = partition == null || request.get("op").asText().equals("new") || canMove();
        try {
          long before = partition == null ? 0 : partition.startOffset();
          run(request, out);
          if (request.get("op").asText().equals("log_start")) before = Math.max(before, request.get("offset").asLong());
          if (request.has("gap")) evenGaps(request.get("gap").asLong());
          if (request.path("even").asBoolean() && canMove()) even(before);
        } catch (Exception fault) { out.put("fault", fault.toString()); }
        out.set("writes", issued); out.set("letters", letters);
        answers(out);
        out.put("could_move", couldMove);
        if (!out.has("refused") && !out.has("fault")) state(out);
      }
      result.println(out);
      result.flush();
    }
  }
}
