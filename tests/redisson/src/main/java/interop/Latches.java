package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RCountDownLatch;

/** Count-down latches. */
final class Latches {
    private Latches() {}

    static Operation operation(RCountDownLatch latch, Command command) {
        return switch (command.op) {
            case "init" -> () -> latch.trySetCount(command.n);
            case "countDown" -> Operation.doing(latch::countDown);
            case "await" -> command.wait == null
                    ? Operation.doing(latch::await)
                    : () -> latch.await(command.wait, MILLISECONDS);
            case "count" -> latch::getCount;
            case "delete" -> latch::delete;
            default -> throw command.unknown();
        };
    }
}
