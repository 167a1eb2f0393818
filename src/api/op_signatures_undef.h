/* api/op_signatures_undef.h - undefines the words of the rows of api/op_signatures.h, after each
 * use of the rows that defined them. Included once for each use, so it has no guard. */
#undef TCI_MUST
#undef TCI_MAY
#undef TCI_MUST_FIELD
#undef TCI_FIELD
#undef TCI_TYPED
#undef TCI_FIELDS
#undef TCI_ON
#undef TCI_STORED
#undef TCI_CALL
#undef TCI_CALL_MANY
