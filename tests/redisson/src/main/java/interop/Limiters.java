package interop;

import java.time.Duration;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.ratelimiter.RateLimiterArgs;

/** Rate limiters: {@code n} permits, or the rate. */
final class Limiters {
    private Limiters() {}

    // Programs for older versions use `setRate` with a type and `tryAcquire` in units.
    @SuppressWarnings("deprecation")
    static Operation operation(RRateLimiter limiter, Command command) {
        long n = command.permits();
        var type = "own".equals(command.scope) ? RateType.PER_CLIENT : RateType.OVERALL;
        return switch (command.op) {
            case "init" -> () -> command.lease == null
                    ? limiter.trySetRate(type, n, Duration.ofMillis(command.interval))
                    : limiter.trySetRate(type, n, Duration.ofMillis(command.interval), Duration.ofMillis(command.lease));
            case "reset" -> Operation.doing(() -> limiter.setRate(type, n, Duration.ofMillis(command.interval)));
            case "update" -> () -> limiter.updateRate(
                    RateLimiterArgs.of(type, n, Duration.ofMillis(command.interval)).keepState(true));
            case "acquire" -> Operation.doing(() -> limiter.acquire(n));
            case "try" -> () -> command.wait == null
                    ? limiter.tryAcquire(n)
                    : limiter.tryAcquire(n, Duration.ofMillis(command.wait));
            case "release" -> Operation.doing(() -> limiter.release(n));
            case "available" -> limiter::availablePermits;
            case "rate" -> () -> limiter.getConfig().getRate();
            case "delete" -> limiter::delete;
            default -> throw command.unknown();
        };
    }
}
