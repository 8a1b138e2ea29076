"""The life of a URL.

A URL is first *named*: by a seed, a sitemap or feed, a link of a page, or a redirect. Whoever names it sends a
`DiscoveredUrl` to the owner of its host. Hosts are dealt to partitions by a digest of scheme and authority, and a
partition has one owner at a time, so all that is decided about a host is decided in one place and one order.

*Admit* brings it to its normal form, asks scope, traps and budgets, and looks it up among the URLs that are known. A
known one is at most told that somebody named it again. A new one gets a row, durable before anything else happens to
it, and a place in its host's back queue.

*Frontier* waits. A host is ready when its robots rules are known and fresh, nothing of it is in flight beyond its
concurrency, its delay has passed since the last answer, it is not backed off or paused, and its day's budget is not
spent. Of the ready hosts the one that was due first is next; of its URLs, the one of highest rank that is due. The
grant is one step: the host's token is taken and the `FetchLease` is made, or neither. Nothing else makes leases, and
a lease is seen by nobody before that step is durable. robots.txt is fetched by the same leases, under the same token.

*Fetch* carries a lease out: one request, never a second, never a redirect followed, to an address that was checked
when the name was resolved and again as the socket connects. Whatever the world does becomes a `FetchResult`. It goes
back to the owner, who returns the token, starts the delay, and knows what the site asked for: a `Retry-After`, an end
to it all by 429, a redirect that is admitted as a URL of its own host.

*Store* has meanwhile laid the body into a segment, once for each content, and synced it; only then it says so in a
`StoredResult`. *Complete* is the owner again: a lease whose body lies durable is closed, the visit is written to the
URL's row, and the next visit is set by what was observed: soon where pages change, late where they do not, later
still where a page is gone. A failure that may pass is tried again after 30 s, 2, 5, 15 and 15 minutes, then it is a
dead letter. A result for a lease that is not in flight changes nothing, however often it comes.

*Parse* reads the body by its reference, in a process of its own under limits, and gives a `ParsedPage`: links,
canonical, directives, title, text, fingerprint. *Route* sends each link to the owner of its host as a
`DiscoveredUrl`, and the circle is closed. *Index* passes on what a search index wants to know.

The flow is a circle, so it must not wait for itself: grants stop when too much is in flight, unstored or unparsed,
but admitting and completing never wait for grants.

The stages and their topics stand as data in `streams.topology`; their rules in `streams.core`, which knows no clock,
dice or I/O: it is told the time and answers with what is to be done. What drives it is a runner: `streams.embedded`
for one machine, where topics are queues of one process.
"""
