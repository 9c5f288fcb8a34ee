package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RFencedLock;
import org.redisson.api.RExpirable;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Locks of all kinds. */
final class Locks {
    private Locks() {}

    static Operation operation(RLock lock, Command command) {
        return switch (command.op) {
            case "lock" -> Operation.doing(() -> {
                if (command.lease == null) {
                    lock.lockInterruptibly();
                } else {
                    lock.lockInterruptibly(command.lease, MILLISECONDS);
                }
            });
            case "try" -> () -> command.wait == null
                    ? lock.tryLock()
                    : lock.tryLock(command.wait, command.leaseOrWatchdog(), MILLISECONDS);
            case "unlock" -> Operation.doing(lock::unlock);
            case "delete" -> () -> ((RExpirable) lock).delete();
            case "forceUnlock" -> lock::forceUnlock;
            case "holdCount" -> lock::getHoldCount;
            case "isLocked" -> lock::isLocked;
            case "isHeld" -> lock::isHeldByCurrentThread;
            case "ttl" -> lock::remainTimeToLive;
            default -> throw command.unknown();
        };
    }

    static Operation fenced(RFencedLock lock, Command command) {
        return switch (command.op) {
            case "lock" -> command.lease == null
                    ? lock::lockAndGetToken
                    : () -> lock.tryLockAndGetToken(Integer.MAX_VALUE, command.lease, MILLISECONDS);
            case "try" -> command.wait == null
                    ? lock::tryLockAndGetToken
                    : () -> lock.tryLockAndGetToken(command.wait, command.leaseOrWatchdog(), MILLISECONDS);
            case "token" -> lock::getToken;
            default -> operation(lock, command);
        };
    }

    static Operation multi(RedissonClient redisson, Command command) {
        RLock[] members = command.names.stream().map(redisson::getLock).toArray(RLock[]::new);
        return operation(redisson.getMultiLock(members), command);
    }
}
