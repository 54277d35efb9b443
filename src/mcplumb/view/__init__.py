"""``mcplumb view``: sessions and a workbench in the browser, served on loopback only.

==================  ====================================================================================================
``run_view``        puts the parts together, listens, and opens the browser
``view_app``        the ASGI application: every request passes ``access``, then gets a file of the page or an API answer
``access``          who may use the page: the secret in its address, Host and Origin, and the headers of each response
``api_routes``      the table of the JSON API: a section adds its `Route` objects, a handler gets an `ApiCall`
``event_hub``       server-sent events, one stream for each page that is open
``watch/``          the section *Watch*: sessions, live and recorded
``workbench/``      the section *Workbench*: use a server by hand
``page/``           the page itself: HTML, CSS and ES modules, type-checked by ``make check-page``; no build step
==================  ====================================================================================================

A section is a package here, whose object has ``routes()``, ``open()`` and ``close()`` (`Section`), a folder of the
same name in ``page/scripts/`` whose ``section.js`` exports ``mount``, and a style sheet in ``page/styles/``.
"""
