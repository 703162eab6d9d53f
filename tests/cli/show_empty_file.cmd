: >empty.apr; aprconv show empty.apr
