"""Whom an end trusts: certificates, what was revoked, and both again when their files change.

No socket, thread or session comes in.
"""
