package interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A thread that runs its tasks in order. */
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

    /** Interrupts the task that runs. */
    void interrupt() {
        thread.interrupt();
    }

    private void run() {
        while (true) {
            try {
                work.take().run();
            } catch (InterruptedException e) {
                // The interrupt came between two tasks.
            }
        }
    }
}
