package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** Permits, without and with a lease. */
final class Semaphores {
    private Semaphores() {}

    static Operation plain(RSemaphore semaphore, Command command) {
        int n = command.permits();
        return switch (command.op) {
            case "init" -> () -> semaphore.trySetPermits(n);
            case "acquire" -> Operation.doing(() -> semaphore.acquire(n));
            case "try" -> () -> command.wait == null
                    ? semaphore.tryAcquire(n)
                    : semaphore.tryAcquire(n, Duration.ofMillis(command.wait));
            case "release" -> Operation.doing(() -> semaphore.release(n));
            case "available" -> semaphore::availablePermits;
            case "add" -> Operation.doing(() -> semaphore.addPermits(n));
            case "drain" -> semaphore::drainPermits;
            default -> throw command.unknown();
        };
    }

    static Operation leased(RPermitExpirableSemaphore semaphore, Command command) {
        int n = command.permits();
        return switch (command.op) {
            case "init" -> () -> semaphore.trySetPermits(n);
            case "acquire" -> command.lease == null
                    ? semaphore::acquire
                    : () -> semaphore.acquire(command.lease, MILLISECONDS);
            case "try" -> command.wait == null
                    ? semaphore::tryAcquire
                    : () -> semaphore.tryAcquire(command.wait, command.leaseOrWatchdog(), MILLISECONDS);
            case "release" -> Operation.doing(() -> semaphore.release(command.permit));
            case "tryRelease" -> () -> semaphore.tryRelease(command.permit);
            case "available" -> semaphore::availablePermits;
            case "acquired" -> semaphore::acquiredPermits;
            case "total" -> semaphore::getPermits;
            case "setTotal" -> Operation.doing(() -> semaphore.setPermits(n));
            case "add" -> Operation.doing(() -> semaphore.addPermits(n));
            case "updateLease" -> () -> semaphore.updateLeaseTime(command.permit, command.lease, MILLISECONDS);
            case "leaseTime" -> () -> semaphore.getLeaseTime(command.permit);
            default -> throw command.unknown();
        };
    }
}
