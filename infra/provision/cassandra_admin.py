"""The cluster's side of `keyspace.CassandraAdmin`, by cassandra-driver, and the way in that all of the fleet shares."""

from __future__ import annotations

import ssl
from collections import Counter
from typing import Any

from cassandra import DriverException, OperationTimedOut, Unauthorized, UnresolvableContactPoints
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import DefaultEndPoint
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)

from infra.provision.cql import Table
from infra.provision.steps import ServiceAway
from infra.settings_fleet import Fleet, host_port
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["DriverAdmin", "open_cluster"]

CONNECT_S_MAX = 10.0
_RECONNECT_FIRST_S, _RECONNECT_S_MAX = 0.5, 5.0
_STATEMENT_S_MAX = 60.0  # a new table waits until every node has agreed on it


def open_cluster(fleet: Fleet) -> Cluster:
    """A cluster by the settings, not connected yet. Raises CrawlError for certificates that cannot be read.

    Queries go first to a replica of their row in the datacenter of `fleet.cassandra_datacenter`.
    """
    if fleet.cassandra_datacenter:
        near = DCAwareRoundRobinPolicy(local_dc=fleet.cassandra_datacenter)
    else:
        near = RoundRobinPolicy()
    return Cluster(
        contact_points=[DefaultEndPoint(*address) for address in map(host_port, fleet.cassandra) if address],
        execution_profiles={
            EXEC_PROFILE_DEFAULT: ExecutionProfile(
                load_balancing_policy=TokenAwarePolicy(near), request_timeout=_STATEMENT_S_MAX
            )
        },
        auth_provider=PlainTextAuthProvider(fleet.cassandra_user, fleet.cassandra_password)
        if fleet.cassandra_user
        else None,
        ssl_context=_tls(fleet) if fleet.cassandra_tls else None,
        # The driver's own waits up to ten minutes between two tries, and gives a node up after 64 of them.
        reconnection_policy=ExponentialReconnectionPolicy(_RECONNECT_FIRST_S, _RECONNECT_S_MAX, max_attempts=None),
        connect_timeout=CONNECT_S_MAX,
        control_connection_timeout=CONNECT_S_MAX,
    )


def _tls(fleet: Fleet) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=fleet.cassandra_ca or None)
        if fleet.cassandra_certificate:
            context.load_cert_chain(fleet.cassandra_certificate, fleet.cassandra_key or None)
    except (OSError, ssl.SSLError) as error:
        raise CrawlError(
            f"cassandra: needed certificates in PEM files, got: {error}; check fleet.cassandra_ca,"
            " cassandra_certificate and cassandra_key"
        ) from error
    # Nodes are known by their addresses, which few certificates carry. A cluster's own authority signs nobody else; of
    # a certificate by a public one only the name says whose it is.
    context.check_hostname = not fleet.cassandra_ca
    return context


class DriverAdmin:
    """One cluster. Close it."""

    def __init__(self, fleet: Fleet) -> None:
        self._address = ",".join(fleet.cassandra)
        self._near = fleet.cassandra_datacenter
        try:
            self._cluster = open_cluster(fleet)
        except UnresolvableContactPoints as error:
            raise self._told(error) from error
        try:
            self._session = self._cluster.connect()
        except (NoHostAvailable, OperationTimedOut) as error:
            self._cluster.shutdown()
            raise self._told(error) from error

    def close(self) -> None:
        self._cluster.shutdown()

    def nodes(self) -> dict[str, int]:
        return dict(Counter(str(host.datacenter) for host in self._cluster.metadata.all_hosts()))

    def datacenter(self) -> str:
        return self._near or str(self._rows("SELECT data_center FROM system.local")[0].data_center)

    def replication(self, keyspace: str) -> dict[str, str] | None:
        rows = self._rows(f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'")
        if not rows:
            return None
        found = dict(rows[0].replication)
        found["class"] = str(found.get("class", "")).rpartition(".")[2]
        return found

    def tables(self, keyspace: str) -> dict[str, Table]:
        options = self._rows(
            f"SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
        )
        columns: dict[str, list[Any]] = {row.table_name: [] for row in options}
        for row in self._rows(
            "SELECT table_name, column_name, kind, position, type FROM system_schema.columns"
            f" WHERE keyspace_name = '{keyspace}'"
        ):
            columns.setdefault(row.table_name, []).append(row)
        return {
            row.table_name: Table(
                name=row.table_name,
                columns={column.column_name: column.type for column in columns[row.table_name]},
                partition_key=_key(columns[row.table_name], "partition_key"),
                clustering=_key(columns[row.table_name], "clustering"),
                time_to_live_s=row.default_time_to_live or 0,
            )
            for row in options
        }

    def execute(self, statement: str, keyspace: str | None = None) -> None:
        if keyspace is not None:
            statement = statement.replace("TABLE IF NOT EXISTS ", f"TABLE IF NOT EXISTS {keyspace}.", 1)
            statement = statement.replace("ALTER TABLE ", f"ALTER TABLE {keyspace}.", 1)
        self._rows(statement)

    def _rows(self, statement: str) -> list[Any]:
        try:
            return list(self._session.execute(statement))
        except (NoHostAvailable, OperationTimedOut) as error:
            raise self._told(error) from error
        except Unauthorized as error:
            raise CrawlError(
                f"cassandra at {self._address}: needed leave for {statement[:60]!r}, got: {error};"
                " grant that role CREATE, ALTER, SELECT and MODIFY on the keyspace",
                EXIT_FAILED,
            ) from error
        except DriverException as error:
            raise CrawlError(
                f"cassandra at {self._address}: needed {statement[:60]!r} carried out, got: {error};"
                " the node's log has more",
                EXIT_FAILED,
            ) from error

    def _told(self, error: Exception) -> ServiceAway:
        said = str(error)
        if isinstance(error, NoHostAvailable):
            reasons = error.errors.values() if isinstance(error.errors, dict) else [error.errors]
            said = "; ".join(dict.fromkeys(str(reason) or type(reason).__name__ for reason in reasons)) or said
        if "AuthenticationFailed" in str(error) or "authentic" in said.lower():
            remedy = "check fleet.cassandra_user and cassandra_password"
        else:
            remedy = (
                "start it (headrace services up cassandra), or say where it is: fleet.cassandra,"
                " HEADRACE_FLEET__CASSANDRA=HOST:PORT"
            )
        return ServiceAway("cassandra", self._address, said, remedy)


def _key(columns: list[Any], kind: str) -> tuple[str, ...]:
    return tuple(column.column_name for column in sorted(columns, key=lambda one: one.position) if column.kind == kind)
