"""The scenarios. Each is a web that asks one thing of every stage on the way from a seed to a document."""

from __future__ import annotations

from tests.scenarios.web import Answer, Scenario, html, redirect

A, B, C = "http://a.test", "http://b.test", "https://c.test"

ROBOTS = Answer(f"User-agent: *\nDisallow: /private/\nSitemap: {A}/sitemap.xml\n".encode(), type="text/plain")
SITEMAP = Answer(
    f"""<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
    <url><loc>{A}/listed</loc><lastmod>2024-05-01</lastmod></url><url><loc>{B}/foreign</loc></url></urlset>""".encode(),
    type="application/xml",
)
WORDS = "<p>One word after another, and a few more words, so that there is some text to be found."

SITE = Scenario(
    "links of all kinds, directives and types",
    (A + "/",),
    (
        {
            A + "/robots.txt": ROBOTS,
            A + "/sitemap.xml": SITEMAP,
            A + "/": html(
                f"""<title>Home</title><base href=/d/><a href=one>1</a><a href=../two rel=nofollow>2</a>
                <a href={B}/far#part>far</a><iframe src=/framed></iframe><area href=/area>
                <a href=/private/secret>no</a><a href=/moved>moved</a><a href=/gone>gone</a>
                <a href=/noindex>n</a><a href=/late>l</a><a href=/nofollow>f</a><a href=/picture>p</a>
                <a href=/plain>t</a><a href=/soft>s</a><a href=/empty>e</a><a href=/refresh>r</a>
                <a href=/canonical>c</a>{WORDS}"""
            ),
            A + "/d/one": html(f"<title>One</title><a href=/>home</a><a href=/d/one>self</a>{WORDS} one"),
            A + "/framed": html(f"<title>Framed</title>{WORDS} framed"),
            A + "/area": html(f"<title>Area</title>{WORDS} area"),
            A + "/listed": html(f"<title>Listed</title>{WORDS} listed"),
            A + "/moved": redirect(A + "/moved/here"),
            A + "/moved/here": html(f"<title>Here</title>{WORDS} here"),
            A + "/noindex": html(
                f"<title>No</title><meta name=robots content=noindex><a href=/from-noindex>x</a>{WORDS}"
            ),
            A + "/from-noindex": html(f"<title>From</title>{WORDS} from"),
            A + "/late": html(f"<title>Late</title>{WORDS}", headers=((b"X-Robots-Tag", b"noindex"),)),
            A + "/nofollow": html(f"<title>F</title><meta name=robots content=nofollow><a href=/never>x</a>{WORDS} f"),
            A + "/picture": Answer(b"\x89PNG\r\n", type="image/png"),
            A + "/plain": Answer(b"Only plain words.", type="text/plain"),
            A + "/soft": html("<title>404 Not Found</title><p>Page not found"),
            A + "/empty": html(""),
            A + "/refresh": html(f'<title>R</title><meta http-equiv=refresh content="0;url=/refreshed">{WORDS} r'),
            A + "/refreshed": html(f"<title>Refreshed</title>{WORDS} refreshed"),
            A + "/canonical": html(
                f"""<title>C</title><link rel=canonical href=/canon><link rel=alternate hreflang=de href={C}/de>
                <link rel=next href=/canonical?page=2>{WORDS} canonical"""
            ),
            A + "/canon": html(
                f"<title>Canon</title>{WORDS} canon", headers=((b"Link", f'<{A}/canon>; rel="canonical"'.encode()),)
            ),
            A + "/canonical?page=2": html(f"<title>C2</title>{WORDS} two"),
            B + "/far": html(f"<html lang=de><title>Fern \u00fc</title>{WORDS} far<a href={A}/d/one>back</a>"),
            C + "/de": html(f"<title>Deutsch</title>{WORDS} de"),
        },
    ),
)

VISITS = Scenario(
    "pages that change, go, come back, move and turn private",
    (A + "/",),
    (
        {
            A + "/": html(
                f"<title>Home</title><a href=/changes>1</a><a href=/goes>2</a><a href=/moves>3</a><a href=/hides>4</a>"
                f"<a href=/stays>5</a><a href=/blunder>6</a><a href=/turns>7</a>{WORDS}"
            ),
            A + "/changes": html(f"<title>First</title>{WORDS} first"),
            A + "/goes": html(f"<title>Goes</title>{WORDS} goes"),
            A + "/moves": html(f"<title>Moves</title>{WORDS} moves"),
            A + "/hides": html(f"<title>Hides</title>{WORDS} hides"),
            A + "/stays": html(f"<title>Stays</title>{WORDS} stays"),
            A + "/blunder": html(f"<title>Blunder</title>{WORDS} blunder"),
            A + "/turns": html(f"<title>Turns</title>{WORDS} turns"),
            A + "/moved": html(f"<title>Moved</title>{WORDS} moved"),
        },
        {
            A + "/changes": html(f"<title>Second</title><a href=/new>new</a>{WORDS} second"),
            A + "/new": html(f"<title>New</title>{WORDS} new"),
            A + "/goes": Answer(status=410),
            A + "/blunder": Answer(status=404),
            A + "/moves": redirect("/moved"),
            A + "/hides": html(f"<title>Hides</title>{WORDS} hides", headers=((b"X-Robots-Tag", b"noindex"),)),
            A + "/turns": Answer(b"%PDF-1.7", type="application/pdf"),
        },
        {
            A + "/blunder": html(f"<title>Blunder</title>{WORDS} blunder"),
            A + "/moves": html(f"<title>Moves</title>{WORDS} moves"),
        },
        {
            A + "/goes": html(f"<title>Goes</title>{WORDS} goes"),
            A + "/hides": html(f"<title>Hides</title>{WORDS} hides"),
            A + "/changes": html(f"<title>Third</title>{WORDS} third"),
        },
    ),
)

SCENARIOS = (SITE, VISITS)
