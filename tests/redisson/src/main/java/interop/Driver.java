package interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Runs Redisson commands: reads one command per line from standard input, and writes one reply per line in the order in which
 * the commands finish. Ends with its input.
 *
 * <p>Every actor is a separate thread, so that several can wait at once. The commands of one actor run one after the other.
 */
public final class Driver {
    private final Gson gson = new GsonBuilder().disableHtmlEscaping().create();
    private final PrintStream out =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private final Clients clients = new Clients();
    private final Map<String, Actor> actors = new HashMap<>();

    public static void main(String[] args) throws IOException {
        new Driver().run();
        // Threads that wait for a lock must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private void run() throws IOException {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Command command = gson.fromJson(line, Command.class);
            Actor actor = actors.computeIfAbsent(command.client + "/" + command.actor, Actor::new);
            if (command.op.equals("interrupt")) {
                actor.interrupt();
            } else {
                actor.submit(() -> answer(command));
            }
        }
    }

    private void answer(Command command) {
        Reply reply = new Reply();
        reply.id = command.id;
        reply.thread = Thread.currentThread().getId();
        try {
            Operation operation = Operation.of(clients, command);
            reply.from = System.nanoTime();
            reply.value = operation.run();
        } catch (Exception e) {
            Throwable root = e;
            while (root.getCause() != null) {
                root = root.getCause();
            }
            reply.error = root.getClass().getSimpleName();
            reply.message = root.getMessage();
        }
        reply.to = System.nanoTime();
        String line = gson.toJson(reply);
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }
}
