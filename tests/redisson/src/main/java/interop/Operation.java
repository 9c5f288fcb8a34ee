package interop;

/** The operation of a command, ready to run: its object has been created. */
interface Operation {
    Object run() throws Exception;

    static Operation of(Clients clients, Command command) {
        if (command.kind.equals("client")) {
            return clients.operation(command);
        }
        var redisson = clients.get(command.client);
        return switch (command.kind) {
            case "lock" -> Locks.operation(redisson.getLock(command.name), command);
            case "fair" -> Locks.operation(redisson.getFairLock(command.name), command);
            case "spin" -> Locks.operation(redisson.getSpinLock(command.name), command);
            case "read" -> Locks.operation(redisson.getReadWriteLock(command.name).readLock(), command);
            case "write" -> Locks.operation(redisson.getReadWriteLock(command.name).writeLock(), command);
            case "fenced" -> Locks.fenced(redisson.getFencedLock(command.name), command);
            case "multi" -> Locks.multi(redisson, command);
            case "semaphore" -> Semaphores.plain(redisson.getSemaphore(command.name), command);
            case "leased" -> Semaphores.leased(redisson.getPermitExpirableSemaphore(command.name), command);
            case "limiter" -> Limiters.operation(redisson.getRateLimiter(command.name), command);
            case "latch" -> Latches.operation(redisson.getCountDownLatch(command.name), command);
            default -> throw new IllegalArgumentException("unknown kind " + command.kind);
        };
    }

    /** For operations that return nothing. */
    interface Action {
        void run() throws Exception;
    }

    static Operation doing(Action action) {
        return () -> {
            action.run();
            return null;
        };
    }
}
