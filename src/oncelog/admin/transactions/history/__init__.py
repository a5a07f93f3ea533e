"""The past of transactional ids and their transactions: time-outs, ids out of use, markers that were lost."""
