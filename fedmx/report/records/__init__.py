"""What a report knows: figures and tables read from run folders.

No HTML and no drawing here.
"""
