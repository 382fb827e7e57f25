"""RFC 9113 and RFC 7541 from outside: bytes go to a socket of ours, frames come back.

cases                what a case is, and the pieces that many of them send
server_cases_frames  frames, streams, flow control: 146 cases, counted as h2spec does, begin here
server_cases_fields  header blocks and requests: the other ones of the 146
server_cases_more    what h2spec does not ask
client_cases         the same asked of our channel by a hostile server
raw_end              the end of a socket that writes bytes and says in a word what came back
"""
