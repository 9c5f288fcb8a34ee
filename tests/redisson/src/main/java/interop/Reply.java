package interop;

/** One line of standard output. {@code from} and {@code to} are {@link System#nanoTime}, on Linux the clock CLOCK_MONOTONIC. */
final class Reply {
    long id;
    /** The thread's id as Redisson writes it into Redis. */
    long thread;
    Object value;
    /** The simple name of the exception at the root, if there was one. */
    String error;
    String message;
    long from;
    long to;
}
