"""How bytes reach a server and come back, bounded. Only these files and `session.py` speak to the SDK's internals."""
