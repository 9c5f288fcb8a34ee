package interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A thread that runs what it is given, in order. */
final class Actor {
    private final BlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    private final Thread thread;

    Actor(String name) {
        thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
    }

    void submit(Runnable task) {
        work.add(task);
    }

    /** Interrupts what it is waiting for. */
    void interrupt() {
        thread.interrupt();
    }

    private void run() {
        while (true) {
            try {
                work.take().run();
            } catch (InterruptedException e) {
                // It came between two tasks: there was nothing to interrupt.
            }
        }
    }
}
