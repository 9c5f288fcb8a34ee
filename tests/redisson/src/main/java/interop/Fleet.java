package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.LogManager;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Many clients that compete for one name, for the benchmark {@code fleet}: each acquires, holds, releases and pauses.
 *
 * <p>Arguments: the address, {@code lock}, {@code fair}, {@code write}, {@code semaphore} or {@code leased}, the name, the number of
 * clients, the microseconds that each holds and pauses, and the number of permits. Prints {@code ready}. At each line on standard
 * input it prints the number of grants since the last line, and the longest and the sum of their waits in nanoseconds.
 */
final class Fleet {
    private static final AtomicLong GRANTS = new AtomicLong();
    private static final AtomicLong LONGEST = new AtomicLong();
    private static final AtomicLong WAITED = new AtomicLong();

    private Fleet() {}

    public static void main(String[] args) throws InterruptedException, IOException {
        // Netty warns about so many clients in one process.
        LogManager.getLogManager().reset();
        int size = Integer.parseInt(args[3]);
        long nanos = TimeUnit.MICROSECONDS.toNanos(Long.parseLong(args[4]));
        var begin = new CountDownLatch(1);
        for (int n = 0; n < size; n++) {
            Operation turn = turn(client(args[0]), args, nanos);
            var thread = new Thread(() -> work(turn, begin, nanos), "worker");
            thread.setDaemon(true);
            thread.start();
        }
        begin.countDown();
        System.out.println("ready");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            System.out.println(GRANTS.getAndSet(0) + " " + LONGEST.getAndSet(0) + " " + WAITED.getAndSet(0));
        }
        // No orderly shutdown is needed, because the server belongs to the benchmark.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient client(String address) {
        var config = new Config();
        // As few threads as one client needs, because 256 clients share two cores.
        config.setThreads(1).setNettyThreads(1);
        config.useSingleServer()
                .setAddress(address)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(2)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(1);
        return Redisson.create(config);
    }

    private static Operation turn(RedissonClient client, String[] args, long nanos) {
        String name = args[2];
        int permits = Integer.parseInt(args[5]);
        switch (args[1]) {
            case "lock":
                return locking(client.getLock(name), nanos);
            case "fair":
                return locking(client.getFairLock(name), nanos);
            case "write":
                return locking(client.getReadWriteLock(name).writeLock(), nanos);
            case "semaphore":
                RSemaphore semaphore = client.getSemaphore(name);
                semaphore.trySetPermits(permits);
                return Operation.doing(() -> {
                    long began = System.nanoTime();
                    semaphore.acquire();
                    granted(began, nanos);
                    semaphore.release();
                });
            case "leased":
                RPermitExpirableSemaphore leased = client.getPermitExpirableSemaphore(name);
                leased.trySetPermits(permits);
                return Operation.doing(() -> {
                    long began = System.nanoTime();
                    String id = leased.acquire(30, TimeUnit.SECONDS);
                    granted(began, nanos);
                    leased.release(id);
                });
            default:
                throw new IllegalArgumentException("unknown kind " + args[1]);
        }
    }

    private static Operation locking(RLock lock, long nanos) {
        return Operation.doing(() -> {
            long began = System.nanoTime();
            lock.lock();
            granted(began, nanos);
            lock.unlock();
        });
    }

    private static void granted(long began, long nanos) throws InterruptedException {
        long waited = System.nanoTime() - began;
        GRANTS.incrementAndGet();
        WAITED.addAndGet(waited);
        LONGEST.accumulateAndGet(waited, Math::max);
        TimeUnit.NANOSECONDS.sleep(nanos);
    }

    private static void work(Operation turn, CountDownLatch begin, long nanos) {
        try {
            begin.await();
            while (true) {
                turn.run();
                TimeUnit.NANOSECONDS.sleep(nanos);
            }
        } catch (Exception e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }
}
