"""The vocabulary of the admin protocol: one struct for each request and each reply.

`requests.py` has the frames, logins, reader groups and backups, and joins the requests of all
files; the other files have the requests about one subject each. Imports nothing else of this
package. Start with `requests.py`.
"""
