"""Push: messages to consumers as soon as a broker has acknowledged them.

Push is only faster: whatever is not pushed is pulled, so each part may leave a message out.
"""
