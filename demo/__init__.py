"""The main job on real input: no message is lost when broker and Spark driver are killed.

`make demo` sends the files of the Python standard library through them. `story.py` has the steps in
order; `__main__.py` has the frame: options, the temporary directory, and the end of every process.
The demo is a client like any other: of warren it uses the command `warren server`, the Spark
format, and the admin client, which reports the state of a reader group.
"""
