package interop;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Loads of a benchmark, one after the other in one Java machine, so that the client is warm.
 *
 * <p>Arguments: "load"; name servers; kinds, by commas; seconds of each; seconds before each that
 * do not count; sends in flight; batches in flight; bytes of a body. "@@" and a JSON object mark
 * where a measured stretch begins and, with its figures, where it ends.
 */
final class Load {
    private static final int BATCH = 32;
    private static final int TRANSACTION_THREADS = 16;
    private static final int SAMPLES_MAX = 4_000_000;

    private final Rig rig;
    private final PrintStream out;
    private final long measuredNanos;
    private final long warmNanos;
    private final int sendsInFlight;
    private final int batchesInFlight;
    private final byte[] body;
    private final String topic;

    private Load(Rig rig, String[] arguments, PrintStream out) throws Exception {
        this.rig = rig;
        this.out = out;
        measuredNanos = (long) (Double.parseDouble(arguments[3]) * 1e9);
        warmNanos = (long) (Double.parseDouble(arguments[4]) * 1e9);
        sendsInFlight = Integer.parseInt(arguments[5]);
        batchesInFlight = Integer.parseInt(arguments[6]);
        body = new byte[Integer.parseInt(arguments[7])];
        Arrays.fill(body, (byte) 'x');
        topic = rig.topic();
    }

    static boolean run(String[] arguments, PrintStream out) throws Exception {
        String run = Long.toString(System.currentTimeMillis() % 100_000_000L, 36);
        try (Rig rig = new Rig(new Rig.Place(arguments[1], run, false), "load", () -> {})) {
            Load load = new Load(rig, arguments, out);
            for (String kind : arguments[2].split(",")) {
                switch (kind) {
                    case "send" -> load.sends(kind, load.sendsInFlight, 1);
                    case "batch" -> load.sends(kind, load.batchesInFlight, BATCH);
                    case "one" -> load.threads(kind, 1, load.oneByOne());
                    case "transaction" ->
                            load.threads(kind, TRANSACTION_THREADS, load.transactions());
                    case "consume" -> load.consume(kind);
                    default -> throw new IllegalArgumentException("no load " + kind);
                }
            }
        }
        return true;
    }

    /** What a stretch counts: the requests that ended well within it, and how long each took. */
    private final class Stretch {
        private final String kind;
        private final int each;
        private final long[] took = new long[SAMPLES_MAX];
        private final AtomicLong done = new AtomicLong();
        private final AtomicLong refused = new AtomicLong();
        private final long began = System.nanoTime();
        private volatile long measuredFrom = Long.MAX_VALUE;
        private volatile long measuredTo = Long.MAX_VALUE;
        private long cpuBefore;

        Stretch(String kind, int each) {
            this.kind = kind;
            this.each = each;
        }

        void ended(long from, boolean well) {
            long now = System.nanoTime();
            if (now < measuredFrom || now > measuredTo) {
                return;
            }
            if (!well) {
                refused.incrementAndGet();
                return;
            }
            long number = done.getAndIncrement();
            if (number < SAMPLES_MAX) {
                took[(int) number] = now - from;
            }
        }

        /** Waits through the stretch; whoever works goes on until it returns. */
        void pass() {
            sleepUntil(began + warmNanos);
            begin();
            sleepUntil(began + warmNanos + measuredNanos);
            end(System.nanoTime());
        }

        boolean isOver() {
            return measuredTo != Long.MAX_VALUE;
        }

        void begin() {
            cpuBefore = cpuNanos();
            out.println("@@{\"begin\":" + Main.quoted(kind) + "}");
            out.flush();
            measuredFrom = System.nanoTime();
        }

        void end(long at) {
            measuredTo = at;
            long cpu = cpuNanos() - cpuBefore;
            long count = done.get();
            long[] sorted = Arrays.copyOf(took, (int) Math.min(count, SAMPLES_MAX));
            Arrays.sort(sorted);
            out.println("@@{\"end\":" + Main.quoted(kind)
                    + ",\"messages\":" + count * each
                    + ",\"refused\":" + refused.get()
                    + ",\"seconds\":" + (measuredTo - measuredFrom) / 1e9
                    + ",\"p50_ms\":" + quantileMs(sorted, 0.5)
                    + ",\"p99_ms\":" + quantileMs(sorted, 0.99)
                    + ",\"client_cpu_s\":" + cpu / 1e9 + "}");
            out.flush();
        }
    }

    private static double quantileMs(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) (share * (sorted.length - 1))] / 1e6;
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void sleepUntil(long nanos) {
        for (long left = nanos - System.nanoTime(); left > 0; left = nanos - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    // Kinds --------------------------------------------------------------------------------------

    /** One thread keeps a number of sends, or of batches, in flight. */
    private void sends(String kind, int inFlight, int each) throws Exception {
        DefaultMQProducer producer = rig.started(new DefaultMQProducer(rig.unique("p")));
        Semaphore room = new Semaphore(inFlight);
        Stretch stretch = new Stretch(kind, each);
        Thread sender = new Thread(() -> {
            try {
                while (!stretch.isOver()) {
                    room.acquire();
                    SendCallback callback = new Answered(stretch, room);
                    if (each == 1) {
                        producer.send(message(), callback);
                    } else {
                        List<Message> batch = new ArrayList<>(each);
                        for (int i = 0; i < each; i++) {
                            batch.add(message());
                        }
                        producer.send(batch, callback);
                    }
                }
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            } catch (MQClientException | RemotingException | MQBrokerException e) {
                if (!stretch.isOver()) { // else its end interrupted a send
                    throw new IllegalStateException(e);
                }
            }
        });
        sender.start();
        stretch.pass();
        sender.interrupt();
        sender.join();
        room.tryAcquire(inFlight, 10, TimeUnit.SECONDS);
        producer.shutdown();
    }

    private record Answered(Stretch stretch, Semaphore room, long from) implements SendCallback {
        Answered(Stretch stretch, Semaphore room) {
            this(stretch, room, System.nanoTime());
        }

        @Override
        public void onSuccess(SendResult result) {
            stretch.ended(from, result.getSendStatus() == SendStatus.SEND_OK);
            room.release();
        }

        @Override
        public void onException(Throwable error) {
            stretch.ended(from, false);
            room.release();
        }
    }

    /** One request that waits for its answer. */
    @FunctionalInterface
    private interface Work {
        boolean once() throws Exception;
    }

    private Work oneByOne() throws Exception {
        DefaultMQProducer producer = rig.started(new DefaultMQProducer(rig.unique("p")));
        return () -> producer.send(message()).getSendStatus() == SendStatus.SEND_OK;
    }

    private Work transactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(rig.unique("p"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object given) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        rig.started(producer);
        return () -> producer.sendMessageInTransaction(message(), null).getSendStatus()
                == SendStatus.SEND_OK;
    }

    private void threads(String kind, int count, Work work) throws InterruptedException {
        Stretch stretch = new Stretch(kind, 1);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(() -> {
                while (!stretch.isOver()) {
                    long from = System.nanoTime();
                    boolean well;
                    try {
                        well = work.once();
                    } catch (Exception e) { // refused, or its time was up
                        well = false;
                    }
                    stretch.ended(from, well);
                }
            });
            thread.start();
            threads.add(thread);
        }
        stretch.pass();
        for (Thread each : threads) {
            each.join();
        }
    }

    /** A new group takes all that the kinds before left in the topic, from its beginning. */
    private void consume(String kind) throws Exception {
        Stretch stretch = new Stretch(kind, 1);
        DefaultMQPushConsumer consumer = rig.consumer(rig.unique("g"));
        consumer.setPullBatchSize(BATCH);
        consumer.setConsumeMessageBatchMaxSize(BATCH);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeThreadMin(4);
        consumer.subscribe(topic, "*");
        AtomicLong seen = new AtomicLong();
        AtomicLong last = new AtomicLong();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            seen.addAndGet(messages.size());
            last.set(now);
            messages.forEach(message -> stretch.ended(now, true));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (seen.get() == 0 && System.nanoTime() - stretch.began < 30_000_000_000L) {
            LockSupport.parkNanos(1_000_000);
        }
        stretch.begin();
        long end = System.nanoTime() + measuredNanos;
        long before = -1;
        while (System.nanoTime() < end && seen.get() != before) {
            before = seen.get();
            sleepUntil(Math.min(System.nanoTime() + 200_000_000L, end));
        }
        stretch.end(last.get()); // it may have read all there is before the time was up
        consumer.shutdown();
    }

    private Message message() {
        return new Message(topic, body);
    }
}
