package io.headrace.sink;

/** What a task tells JMX, under io.headrace.sink:type=task,name=CONNECTOR-NUMBER. All are counts since its start. */
public interface TaskCountersMBean {
    /** Documents written. */
    long getUpserts();

    /** Deletes carried out, of documents that were there or not. */
    long getDeletes();

    /** Records whose version, or a newer one, the index held already. */
    long getStale();

    /** Records given up, to the dead letters or by tolerance. */
    long getBad();

    /** Bulk requests answered. */
    long getRequests();

    /** Bytes sent in them. */
    long getBytes();

    /** Times that something had to be sent again. */
    long getRetries();
}
