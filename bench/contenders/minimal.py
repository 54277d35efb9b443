"""The smallest Python process that answers a line: what starting costs whatever one does afterwards."""

import os

while os.read(0, 65536):
    os.write(1, b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
