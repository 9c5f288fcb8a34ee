package interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The connections to Redis by name. Each is a Redisson instance with its own UUID. */
final class Clients {
    private final Map<String, RedissonClient> open = new ConcurrentHashMap<>();

    RedissonClient get(String name) {
        RedissonClient client = open.get(name);
        if (client == null) {
            throw new IllegalStateException("no client " + name);
        }
        return client;
    }

    Operation operation(Command command) {
        return switch (command.op) {
            case "connect" -> () -> connect(command);
            case "close" -> Operation.doing(() -> open.remove(command.client).shutdown(0, 2, TimeUnit.SECONDS));
            default -> throw command.unknown();
        };
    }

    private String connect(Command command) {
        RedissonClient client = Redisson.create(config(command));
        open.put(command.client, client);
        return client.getId();
    }

    private static Config config(Command command) {
        var config = new Config();
        // Few threads: a test machine runs many of these at once.
        config.setThreads(4).setNettyThreads(4);
        if (command.watchdog != null) {
            config.setLockWatchdogTimeout(command.watchdog);
        }
        if (command.fairWait != null) {
            config.setFairLockWaitTimeout(command.fairWait);
        }
        String[] addresses = command.addresses.toArray(String[]::new);
        switch (command.mode) {
            case "single" -> config.useSingleServer()
                    .setAddress(addresses[0])
                    .setConnectionMinimumIdleSize(1);
            case "cluster" -> config.useClusterServers()
                    .addNodeAddress(addresses)
                    .setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
            case "sentinel" -> config.useSentinelServers()
                    .addSentinelAddress(addresses)
                    .setMasterName(command.master)
                    .setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSlaveConnectionMinimumIdleSize(1);
            default -> throw new IllegalArgumentException("unknown mode " + command.mode);
        }
        return config;
    }
}
