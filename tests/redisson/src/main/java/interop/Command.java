package interop;

import java.util.List;

/** One line of standard input. Fields that an operation does not need are left out; times are in ms. */
final class Command {
    long id;
    /** The connection to Redis; {@code connect} creates it. */
    String client;
    /** The thread that runs the command: to Redisson, a thread is an owner. */
    String actor;
    /** The kind of the object {@link #name}. */
    String kind;
    String name;
    /** The members of a multi-lock. */
    List<String> names;
    String op;

    /** The longest wait. */
    Long wait;
    /** A lease; without it Redisson's watchdog renews. */
    Long lease;
    /** Permits, a rate, or the count of a latch. */
    Integer n;
    /** The interval of a rate. */
    Long interval;
    /** {@code own}: a rate for each instance of Redisson. */
    String scope;
    /** The id of a permit. */
    String permit;

    // Fields of `connect`.
    /** {@code single}, {@code cluster} or {@code sentinel}. */
    String mode;
    List<String> addresses;
    /** The name that sentinels give the master. */
    String master;
    /** Redisson's {@code lockWatchdogTimeout}. */
    Long watchdog;
    /** Redisson's {@code fairLockWaitTimeout}. */
    Long fairWait;

    /** Redisson's value for a lease that the watchdog renews. */
    static final long WATCHDOG = -1;

    long leaseOrWatchdog() {
        return lease == null ? WATCHDOG : lease;
    }

    int permits() {
        return n == null ? 1 : n;
    }

    IllegalArgumentException unknown() {
        return new IllegalArgumentException("a " + kind + " has no operation " + op);
    }
}
