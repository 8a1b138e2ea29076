"""The cluster's side of `topics.KafkaAdmin`, by confluent-kafka, and the settings that all our Kafka clients share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from infra.provision.steps import ServiceAway
from infra.provision.topics import TopicThere
from infra.settings_fleet import Fleet, KafkaSecurity
from streams.core.failures import EXIT_FAILED, CrawlError

__all__ = ["ConfluentAdmin", "client_settings"]

_ANSWER_S_MAX = 15
_REFUSED_S_MAX = 2  # a port that nobody listens on, asked every second, stays closed
_DEED_S_MAX = 60.0  # 16 topics of 1,024 partitions with 3 copies each take some seconds
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
_KEPT_OUT = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


def client_settings(fleet: Fleet) -> dict[str, str]:
    """librdkafka's settings for any client of the fleet: addresses, TLS, SASL."""
    settings = {
        "bootstrap.servers": ",".join(fleet.kafka),
        "security.protocol": fleet.kafka_security.value,
        "client.id": "headrace",
    }
    if fleet.kafka_security in (KafkaSecurity.SASL_PLAINTEXT, KafkaSecurity.SASL_SSL):
        settings |= {
            "sasl.mechanism": fleet.kafka_sasl_mechanism.value.upper(),
            "sasl.username": fleet.kafka_user,
            "sasl.password": fleet.kafka_password,
        }
    if fleet.kafka_security in (KafkaSecurity.SSL, KafkaSecurity.SASL_SSL):
        given = {
            "ssl.ca.location": fleet.kafka_ca,
            "ssl.certificate.location": fleet.kafka_certificate,
            "ssl.key.location": fleet.kafka_key,
            "ssl.key.password": fleet.kafka_key_password,
        }
        settings |= {key: value for key, value in given.items() if value}
    return settings


class ConfluentAdmin:
    """One cluster, asked in turn; every call waits for its answer."""

    def __init__(self, fleet: Fleet) -> None:
        self._address = ",".join(fleet.kafka)
        self._last_error: KafkaError | None = None
        settings: dict[str, Any] = client_settings(fleet) | {
            "error_cb": self._heard,
            "log_level": 0,  # what matters comes as an error
        }
        try:
            self._admin = AdminClient(settings)
        except KafkaException as error:
            # Raised before anything is sent: a certificate that cannot be read, a mechanism that is not built in.
            raise CrawlError(
                f"kafka at {self._address}: needed settings that its client takes, got: {_words(error)};"
                " see the section fleet of headrace settings"
            ) from error

    def brokers(self) -> int:
        return len(self._listed().brokers)

    def partitions(self) -> dict[str, int]:
        """Partitions of every topic that there is. Needs no more than Describe."""
        return {name: len(one.partitions) for name, one in self._listed().topics.items() if one.error is None}

    def readers(self) -> dict[str, set[str]]:
        """The groups that read each topic now, by their members' assignments; of those groups that we may see."""
        found: dict[str, set[str]] = {}
        names = list(self.groups())
        described = self._admin.describe_consumer_groups(names, request_timeout=_ANSWER_S_MAX) if names else {}
        for name, future in described.items():
            for member in self._result(future, f"group {name}").members:
                for place in member.assignment.topic_partitions:
                    found.setdefault(place.topic, set()).add(name)
        return found

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed, by (topic, partition); empty when there is no such group."""
        asked = ConsumerGroupTopicPartitions(group)
        future = self._admin.list_consumer_group_offsets([asked], request_timeout=_ANSWER_S_MAX)[group]
        places = self._result(future, f"the offsets of group {group}").topic_partitions
        return {(place.topic, place.partition): place.offset for place in places if place.offset >= 0}

    def groups(self) -> tuple[str, ...]:
        """The groups that there are, of those that we may see."""
        listed = self._result(self._admin.list_consumer_groups(request_timeout=_ANSWER_S_MAX), "the list of groups")
        return tuple(sorted(one.group_id for one in listed.valid))

    def bounds(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """Where each partition begins, and ends for a reader of committed data."""
        spec: Any = OffsetSpec  # its package does not say what its functions give
        begins, ends = self._offsets(places, spec.earliest()), self._offsets(places, spec.latest())
        return {place: (begins[place], ends[place]) for place in begins}

    def _offsets(self, places: Sequence[tuple[str, int]], which: Any) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(topic, partition): which for topic, partition in places}
        if not asked:
            return {}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER_S_MAX
        )
        return {
            (place.topic, place.partition): self._result(future, f"the offsets of {place.topic}").offset
            for place, future in futures.items()
        }

    def topics(self, names: Sequence[str]) -> dict[str, TopicThere]:
        listed = self._listed().topics
        present = [name for name in names if name in listed and listed[name].error is None]
        if not present:
            return {}
        asked = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name) for name in present], request_timeout=_ANSWER_S_MAX
        )
        there = {}
        for resource, future in asked.items():
            entries = self._result(future, f"the settings of topic {resource.name}")
            partitions = listed[resource.name].partitions
            there[resource.name] = TopicThere(
                partitions=len(partitions),
                replication=min((len(one.replicas) for one in partitions.values()), default=0),
                config={key: "" if entry.value is None else str(entry.value) for key, entry in entries.items()},
            )
        return there

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
        for future in self._admin.create_topics([topic], operation_timeout=_DEED_S_MAX).values():
            self._result(future, f"topic {name} made")

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            self._result(future, f"settings of topic {name} changed")

    def grow(self, name: str, partitions: int) -> None:
        for future in self._admin.create_partitions([NewPartitions(name, partitions)]).values():
            self._result(future, f"topic {name} grown to {partitions} partitions")

    def _listed(self) -> Any:
        """The cluster's brokers and topics. librdkafka itself asks a closed port until the time is over."""
        for second in range(1, _ANSWER_S_MAX + 1):
            try:
                return self._admin.list_topics(timeout=1.0)
            except KafkaException as error:
                self._admin.poll(0)  # lets what was heard of each broker come to `_heard`
                said = self._last_error.str() if self._last_error is not None else ""
                refused = "refused" in said or "resolve" in said
                code = error.args[0].code()
                if code not in _AWAY or second == _ANSWER_S_MAX or (refused and second >= _REFUSED_S_MAX):
                    raise self._told(error, "the list of topics") from error
        raise AssertionError("the last second raises")

    def _heard(self, error: KafkaError) -> None:
        # "All brokers down" follows the reason of each and says less.
        if self._last_error is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_error = error

    def _result(self, future: Future[Any], needed: str) -> Any:
        try:
            return future.result(_DEED_S_MAX)
        except KafkaException as error:
            raise self._told(error, needed) from error
        except TimeoutError as error:
            raise self._away(f"none within {_DEED_S_MAX:.0f} s") from error

    def _told(self, error: KafkaException, needed: str) -> CrawlError:
        cause: KafkaError = error.args[0]
        code = self._last_error.code() if self._last_error is not None else None
        if cause.code() in _KEPT_OUT or (cause.code() in _AWAY and code in _KEPT_OUT):
            return ServiceAway(
                "kafka",
                self._address,
                f"a refusal: {_brief(self._last_error or cause)}",
                "check fleet.kafka_security, kafka_user, kafka_password and kafka_ca (headrace settings fleet)",
                shut=True,
            )
        if cause.code() in _AWAY:
            return self._away(_brief(self._last_error or cause))
        if cause.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            remedy = "grant that user Create, Describe, DescribeConfigs, Alter and AlterConfigs"
        else:
            remedy = "the broker's log has more"
        return CrawlError(f"kafka at {self._address}: needed {needed}, got: {_brief(cause)}; {remedy}", EXIT_FAILED)

    def _away(self, came: str) -> ServiceAway:
        return ServiceAway(
            "kafka",
            self._address,
            came,
            "start it (headrace services up kafka), or say where it is: fleet.kafka, HEADRACE_FLEET__KAFKA=HOST:PORT",
        )


def _words(error: KafkaException) -> str:
    cause = error.args[0]
    return _brief(cause) if isinstance(cause, KafkaError) else str(cause)


def _brief(error: KafkaError) -> str:
    """The library's sentence without its own bookkeeping: `sasl_ssl://host:9093/bootstrap: ... (after 2ms in ...)`."""
    return str(error.str()).partition(" (after ")[0]
