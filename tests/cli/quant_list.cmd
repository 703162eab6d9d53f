aprquant --list
