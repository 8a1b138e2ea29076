package io.headrace.sink;

import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The counts of a task. They are told, never asked: nothing is decided by them. */
final class TaskCounters implements TaskCountersMBean {
    private static final Logger LOG = LoggerFactory.getLogger(TaskCounters.class);

    final AtomicLong upserts = new AtomicLong();
    final AtomicLong deletes = new AtomicLong();
    final AtomicLong stale = new AtomicLong();
    final AtomicLong bad = new AtomicLong();
    final AtomicLong requests = new AtomicLong();
    final AtomicLong bytes = new AtomicLong();
    final AtomicLong retries = new AtomicLong();
    private ObjectName name;

    /** Makes them visible. A task works as well without: then the log says why. */
    void register(String taskName) {
        try {
            name = new ObjectName("io.headrace.sink:type=task,name=" + ObjectName.quote(taskName));
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, name);
        } catch (JMException e) {
            name = null; // of a task that was abandoned and still has the name: that one takes it away
            LOG.warn("{}: needed its metrics registered, got {}; it runs without them", taskName, e.toString());
        }
    }

    void unregister() {
        if (name == null) {
            return;
        }
        try {
            ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
        } catch (JMException e) {
            LOG.debug("metrics {} were gone already", name, e);
        }
        name = null;
    }

    @Override
    public String toString() {
        return upserts + " upserts, " + deletes + " deletes, " + stale + " stale, " + bad + " bad, " + retries
                + " retries, " + requests + " requests of " + bytes + " bytes";
    }

    @Override
    public long getUpserts() {
        return upserts.get();
    }

    @Override
    public long getDeletes() {
        return deletes.get();
    }

    @Override
    public long getStale() {
        return stale.get();
    }

    @Override
    public long getBad() {
        return bad.get();
    }

    @Override
    public long getRequests() {
        return requests.get();
    }

    @Override
    public long getBytes() {
        return bytes.get();
    }

    @Override
    public long getRetries() {
        return retries.get();
    }
}
