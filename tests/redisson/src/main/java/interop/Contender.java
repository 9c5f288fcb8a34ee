package interop;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.logging.LogManager;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/**
 * Redisson as a contender of the benchmark {@code peers}. {@code benches/src/peers/turns.rs} describes the protocol.
 *
 * <p>Argument: the address. Each task is a thread, because a thread owns a lock.
 */
final class Contender {
    private static final List<RedissonClient> CLIENTS = new ArrayList<>();

    private Contender() {}

    /** One block. Task {@code i} uses client {@code i % clients} and name {@code i % names}. */
    private record Order(
            String kind, String name, int names, int clients, int tasks, int permits, long hold, long pause, boolean turns, long block) {
        static Order of(String line) {
            String[] words = line.trim().split(" ");
            int[] counts = new int[5];
            for (int n = 0; n < counts.length; n++) {
                counts[n] = Integer.parseInt(words[n + 2]);
            }
            // With `turns` a task pauses until another task is granted.
            boolean turns = words[7].equals("turns");
            return new Order(
                    words[0], words[1], counts[0], counts[1], counts[2], counts[3],
                    TimeUnit.MICROSECONDS.toNanos(counts[4]),
                    turns ? 0 : TimeUnit.MICROSECONDS.toNanos(Long.parseLong(words[7])),
                    turns,
                    TimeUnit.MILLISECONDS.toNanos(Long.parseLong(words[8])));
        }
    }

    /** Counts the grants of all tasks of a block. */
    private static final class Turnstile {
        private int grants;

        synchronized int granted() {
            notifyAll();
            return ++grants;
        }

        synchronized void await(int seen, long end) throws InterruptedException {
            for (long left = end - System.nanoTime(); grants == seen && left > 0; left = end - System.nanoTime()) {
                wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
            }
        }
    }

    /** Acquires and releases for a task. */
    private interface Taker {
        Object acquire() throws InterruptedException;

        void release(Object held);
    }

    public static void main(String[] args) throws Exception {
        // Netty warns about so many clients in one process.
        LogManager.getLogManager().reset();
        var in = new BufferedReader(new InputStreamReader(System.in));
        var out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out)));
        say(out, "ready Redisson " + System.getProperty("redisson.version") + ", Java " + System.getProperty("java.version"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var order = Order.of(line);
            while (CLIENTS.size() < order.clients) {
                CLIENTS.add(client(args[0], order.clients));
            }
            var tasks = new ArrayList<Task>();
            var grants = new Turnstile();
            for (int n = 0; n < order.tasks; n++) {
                String name = order.name + ":" + n % order.names;
                tasks.add(new Task(order, grants, taker(CLIENTS.get(n % order.clients), order, name)));
            }
            say(out, "set");
            in.readLine();
            run(tasks, order);
            say(out, "over");
            in.readLine();
            for (int n = 0; n < tasks.size(); n++) {
                tasks.get(n).print(out, n);
            }
            say(out, "end");
        }
        // No orderly shutdown is needed, because the server belongs to the benchmark.
        Runtime.getRuntime().halt(0);
    }

    private static void say(PrintWriter out, String line) {
        out.println(line);
        out.flush();
    }

    /** The default configuration; in a fleet of more than two clients, as few threads and connections as one client needs. */
    private static RedissonClient client(String address, int fleet) {
        var config = new Config();
        var server = config.useSingleServer().setAddress(address);
        if (fleet > 2) {
            config.setThreads(1).setNettyThreads(1);
            server.setConnectionMinimumIdleSize(1)
                    .setConnectionPoolSize(2)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionPoolSize(1);
        }
        return Redisson.create(config);
    }

    private static Taker taker(RedissonClient client, Order order, String name) {
        switch (order.kind) {
            case "lock":
                return locking(client.getLock(name));
            case "fair":
                return locking(client.getFairLock(name));
            case "read":
                return locking(client.getReadWriteLock(name).readLock());
            case "semaphore":
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.trySetPermits(order.permits);
                return taking(() -> {
                    semaphore.acquire();
                    return null;
                }, permit -> semaphore.release());
            case "leased":
                RPermitExpirableSemaphore leased = client.getPermitExpirableSemaphore(name);
                leased.trySetPermits(order.permits);
                return taking(() -> leased.acquire(30, TimeUnit.SECONDS), permit -> leased.release((String) permit));
            default:
                throw new IllegalArgumentException("unknown kind " + order.kind);
        }
    }

    /** Without a lease, so that the watchdog renews. */
    private static Taker locking(RLock lock) {
        return taking(() -> {
            lock.lockInterruptibly();
            return null;
        }, held -> lock.unlock());
    }

    private interface Acquire {
        Object run() throws InterruptedException;
    }

    private static Taker taking(Acquire acquire, Consumer<Object> release) {
        return new Taker() {
            @Override
            public Object acquire() throws InterruptedException {
                return acquire.run();
            }

            @Override
            public void release(Object held) {
                release.accept(held);
            }
        };
    }

    private static void run(List<Task> tasks, Order order) throws InterruptedException {
        long end = System.nanoTime() + order.block;
        for (Task task : tasks) {
            task.begin(end);
        }
        pass(order.block);
        for (Task task : tasks) {
            task.stopWaiting();
        }
        for (Task task : tasks) {
            task.thread.join();
        }
    }

    /** Waits for exactly {@code nanos}, not until the next tick of a timer. */
    private static void pass(long nanos) {
        long end = System.nanoTime() + nanos;
        for (long left = nanos; left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static long now() {
        var now = Instant.now();
        return TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano();
    }

    /** A task and its grants. Times are in nanoseconds since the epoch. */
    private static final class Task {
        private final Order order;
        private final Turnstile turnstile;
        private final Taker taker;
        private final List<long[]> grants = new ArrayList<>();
        private long ungranted;
        private boolean waiting;
        private boolean over;
        private Thread thread;

        Task(Order order, Turnstile turnstile, Taker taker) {
            this.order = order;
            this.turnstile = turnstile;
            this.taker = taker;
        }

        void begin(long end) {
            thread = new Thread(() -> work(end), "task");
            thread.setDaemon(true);
            thread.start();
        }

        private void work(long end) {
            try {
                while (System.nanoTime() < end && startWaiting()) {
                    long requested = now();
                    Object held;
                    try {
                        held = taker.acquire();
                    } catch (InterruptedException e) {
                        ungranted = requested;
                        return;
                    } catch (RedisException e) {
                        // The interrupt came while the request was in flight.
                        if (!(e.getCause() instanceof InterruptedException)) {
                            throw e;
                        }
                        ungranted = requested;
                        return;
                    }
                    long granted = now();
                    hasWaited();
                    int seen = order.turns ? turnstile.granted() : 0;
                    pass(order.hold);
                    long releasing = now();
                    taker.release(held);
                    grants.add(new long[] {requested, granted, releasing, now()});
                    if (order.turns) {
                        turnstile.await(seen, end);
                    }
                    pass(order.pause);
                }
            } catch (InterruptedException | RuntimeException e) {
                e.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }

        private synchronized boolean startWaiting() {
            waiting = !over;
            return waiting;
        }

        /** From here on the task holds, and is not interrupted. */
        private synchronized void hasWaited() {
            waiting = false;
            Thread.interrupted();
        }

        synchronized void stopWaiting() {
            over = true;
            if (waiting) {
                thread.interrupt();
            }
        }

        void print(PrintWriter out, int number) {
            for (long[] grant : grants) {
                out.println(grant[0] + " " + grant[1] + " " + grant[2] + " " + grant[3] + " " + number);
            }
            if (ungranted != 0) {
                out.println(ungranted + " - - - " + number);
            }
        }
    }
}
