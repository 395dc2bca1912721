"""Services: the use cases, one module each; `orchestrator.Client` is the way in.

Must not know: the command line, pages' servers, Ray.
"""
